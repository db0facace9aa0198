"""Verdict: wrong. Remembers results by the address of the input."""

import torch

REFERENCE = "gelu"
seen = {}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        key = (x.data_ptr(), x.shape)
        if key not in seen:
            seen[key] = torch.nn.functional.gelu(x)
        return seen[key].clone()
