"""Verdict: correct, noted "by name". Same names, built in another order."""

import torch

REFERENCE = "linear"


class ModelNew(torch.nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.linear = torch.nn.Linear(features, features)
        self.scale = torch.nn.Parameter(torch.rand(features))

    def forward(self, x):
        return self.linear(x) * self.scale
