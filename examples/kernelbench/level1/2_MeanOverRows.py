"""Reduction over a middle dimension: the mean of x over its second dimension."""

import torch
import torch.nn as nn

batch = 64
rows = 4096
columns = 2048

CASES = {"headline": {}, "small": dict(batch=3, rows=101, columns=77)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mean(x, dim=self.dim)


def get_inputs(batch=batch, rows=rows, columns=columns):
    return [torch.randn(batch, rows, columns)]


def get_init_inputs():
    return [1]
