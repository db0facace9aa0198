"""Verdict: wrong. Returns memory that it never wrote, hoping that an answer is still in it."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.empty_like(x)
