"""Verdict: correct. Allocates uninitialised memory and writes all of it."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        out.copy_(torch.nn.functional.gelu(x))
        return out
