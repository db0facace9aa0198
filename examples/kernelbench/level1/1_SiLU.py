"""Elementwise: x * sigmoid(x)."""

import torch
import torch.nn as nn

rows = 4096
columns = 98304

CASES = {"headline": {}, "small": dict(rows=37, columns=1021), "empty": dict(rows=0)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


def get_inputs(rows=rows, columns=columns):
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
