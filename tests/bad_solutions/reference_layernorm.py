"""Layer normalisation of inputs that are almost normal already."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])


def get_inputs():
    return [torch.randn(16, 512)]


def get_init_inputs():
    return []
