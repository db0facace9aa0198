"""Verdict: correct. Keeps a workspace by shape; every result is computed anew."""

import torch

REFERENCE = "gelu"
workspaces = {}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        space = workspaces.setdefault(x.shape, torch.empty_like(x))
        torch.mul(x, 0.5**0.5, out=space)
        space.erf_().add_(1).mul_(0.5)
        return x * space
