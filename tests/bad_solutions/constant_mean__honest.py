"""Verdict: correct. Adds in another order than the reference."""

import torch

REFERENCE = "mean"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.view(x.shape[0], -1, 64).sum(1).sum(1) / x.shape[1]
