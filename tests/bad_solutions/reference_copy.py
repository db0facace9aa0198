"""A copy: exact, and in memory of its own."""

import torch
import torch.nn as nn

TOLERANCE = dict(rtol=0, atol=0, source="moved values are exact")


class Model(nn.Module):
    def forward(self, x):
        return x.clone()


def get_inputs():
    return [torch.randn(21, 40)]


def get_init_inputs():
    return []
