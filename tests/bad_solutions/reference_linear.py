"""A linear layer and a scale: parameters that must agree."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x) * self.scale


def get_inputs():
    return [torch.randn(9, 12)]


def get_init_inputs():
    return [12]
