"""Large bf16 numbers: half a unit in the last place is more than a flat 1e-2."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x * y


def get_inputs():
    return [torch.randn(40, 30).mul(8).bfloat16(), torch.randn(40, 30).mul(6).bfloat16()]


def get_init_inputs():
    return []
