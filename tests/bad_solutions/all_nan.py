"""Verdict: wrong. NaN compares false with everything, errors included."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("nan"))
