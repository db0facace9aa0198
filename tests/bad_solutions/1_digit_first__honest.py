"""Verdict: correct. A file name that begins with a digit."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)
