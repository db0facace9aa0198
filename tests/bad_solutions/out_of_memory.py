"""Verdict: out of memory. Asks for more memory than there is."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) + torch.empty(1 << 44)[: x.shape[1]]
