"""Verdict: does not load. The class has another name."""

import torch

REFERENCE = "gelu"


class Model_New(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)
