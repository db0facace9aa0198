"""Index of the largest value over a middle dimension, int64."""

import torch
import torch.nn as nn

batch = 64
rows = 4096
columns = 2048

CASES = {"headline": {}, "small": dict(batch=3, rows=97, columns=45)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.argmax(x, dim=self.dim)


def get_inputs(batch=batch, rows=rows, columns=columns):
    return [torch.randn(batch, rows, columns)]


def get_init_inputs():
    return [1]
