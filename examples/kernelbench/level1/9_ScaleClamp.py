"""Scalar arguments: x * scale, held between low and high; the three are Python numbers."""

import torch
import torch.nn as nn

rows = 16384
columns = 4096

CASES = {
    "headline": {},
    "small": dict(rows=45, columns=203),
    "negative": dict(rows=8, columns=33, scale=-3.0),
}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def forward(self, x: torch.Tensor, scale: float, low: float, high: float) -> torch.Tensor:
        return torch.clamp(x * scale, low, high)


def get_inputs(rows=rows, columns=columns, scale=0.75):
    return [torch.randn(rows, columns), scale, -0.5, 1.25]


def get_init_inputs():
    return []
