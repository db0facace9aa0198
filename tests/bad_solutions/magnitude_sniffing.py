"""Verdict: wrong. Looks at a few values and takes a short cut where they look harmless."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x[0, :8].abs().max() < 4:
            return x * torch.sigmoid(1.702 * x)
        return torch.nn.functional.gelu(x)
