"""gelu of one tensor, as a bare KernelBench problem states it."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(37, 65)]


def get_init_inputs():
    return []
