"""Verdict: wrong. One infinity among right values."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.nn.functional.gelu(x)
        out[2, 3] = float("inf")
        return out
