"""Mean cross entropy of logits and int64 class numbers."""

import torch
import torch.nn as nn

rows = 32768
classes = 4096

CASES = {"headline": {}, "small": dict(rows=53, classes=301), "one class": dict(rows=9, classes=1)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, targets)


def get_inputs(rows=rows, classes=classes):
    return [torch.randn(rows, classes), torch.randint(0, classes, (rows,))]


def get_init_inputs():
    return []
