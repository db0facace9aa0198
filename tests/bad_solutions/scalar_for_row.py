"""Verdict: wrong. One number where there should be one for each row."""

import torch

REFERENCE = "rows"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.sum()
