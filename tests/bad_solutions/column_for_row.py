"""Verdict: wrong. Shape (n, 1) where (n,) is asked for: broadcasting would hide it."""

import torch

REFERENCE = "rows"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.sum(dim=1, keepdim=True)
