"""Verdict: wrong. Has the parameters and does not use all of them."""

import torch

REFERENCE = "linear"


class ModelNew(torch.nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(features))
        self.linear = torch.nn.Linear(features, features)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.linear.weight) * self.scale
