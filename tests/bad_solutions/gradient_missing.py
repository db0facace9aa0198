"""Verdict: wrong. The forward is right and cut off from autograd."""

import torch

REFERENCE = "square"


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        return (x * x * w).detach()
