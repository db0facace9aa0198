"""x squared times w, and the gradients of both."""

import torch
import torch.nn as nn

GRADIENTS = True


class Model(nn.Module):
    def forward(self, x, w):
        return x * x * w


def get_inputs():
    return [torch.randn(14, 9), torch.randn(14, 9)]


def get_init_inputs():
    return []
