"""Verdict: wrong. Hands its input back where a copy is asked for."""

import torch

REFERENCE = "copy"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
