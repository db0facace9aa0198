"""Verdict: does not load. A parameter is missing: the weights differ, the kernel is not blamed."""

import torch

REFERENCE = "linear"


class ModelNew(torch.nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.linear = torch.nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x)
