"""Verdict: wrong. Zeroes its input, so that a reference that runs later would agree."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x.zero_()
        return torch.zeros_like(x)
