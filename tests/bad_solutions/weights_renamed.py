"""Verdict: correct. Other names for the same parameters, drawn in the same order."""

import torch

REFERENCE = "linear"


class ModelNew(torch.nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.s = torch.nn.Parameter(torch.rand(features))
        self.proj = torch.nn.Linear(features, features)

    def forward(self, x):
        return self.proj(x) * self.s
