"""Batch normalisation in train mode: statistics of this batch, running statistics updated."""

import torch
import torch.nn as nn

batch = 64
features = 64
size = 256

CASES = {"headline": {}, "small": dict(batch=3, size=19), "offset": dict(batch=2, size=11, mean=50)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.bn = nn.BatchNorm2d(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bn(x)


def get_inputs(batch=batch, size=size, mean=0):
    return [torch.randn(batch, features, size, size) * 1.5 + mean]


def get_init_inputs():
    return [features]
