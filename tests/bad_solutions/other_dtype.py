"""Verdict: wrong. fp64 where fp32 is asked for."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x.double())
