"""Verdict: correct. Returns a Parameter's data and a detached view: plain tensors."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.Parameter(torch.nn.functional.gelu(x)).detach()
