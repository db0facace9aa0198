"""Verdict: correct, noted "by name". Draws one random number before its parameters."""

import torch

REFERENCE = "linear"


class ModelNew(torch.nn.Module):
    def __init__(self, features=12):
        super().__init__()
        torch.rand(1)
        self.scale = torch.nn.Parameter(torch.rand(features))
        self.linear = torch.nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x) * self.scale
