"""Verdict: wrong. The whole answer is computed when the model is built."""

import torch

REFERENCE = "linear"


class ModelNew(torch.nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(features))
        self.linear = torch.nn.Linear(features, features)
        self.answer = self.linear(torch.randn(9, features)).detach() * self.scale.detach()

    def forward(self, x):
        return self.answer.clone()
