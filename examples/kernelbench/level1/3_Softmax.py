"""Softmax over rows so long that one element of the result is about 1e-5."""

import torch
import torch.nn as nn

rows = 4096
columns = 65536

CASES = {"headline": {}, "small": dict(rows=3, columns=16411), "skewed": dict(rows=2, scale=30.0)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


def get_inputs(rows=rows, columns=columns, scale=1.0):
    return [torch.randn(rows, columns) * scale]


def get_init_inputs():
    return []
