"""Verdict: correct. A copy by way of a larger buffer, handed back as a view of it."""

import torch

REFERENCE = "copy"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        buffer = torch.empty(x.shape[0] + 2, *x.shape[1:])
        buffer[1:-1] = x
        return buffer[1:-1]
