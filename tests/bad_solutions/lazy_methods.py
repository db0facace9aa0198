"""Verdict: wrong. A plain tensor whose methods were replaced to compute when asked."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        out.contiguous = lambda: torch.nn.functional.gelu(x)
        return out
