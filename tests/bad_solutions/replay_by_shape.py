"""Verdict: wrong. Remembers results by shape and dtype."""

import torch

REFERENCE = "gelu"
seen = {}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        key = (x.shape, x.dtype)
        if key not in seen:
            seen[key] = torch.nn.functional.gelu(x)
        return seen[key].clone()
