"""Verdict: wrong. Right values, but computed over its input."""

import torch

REFERENCE = "relu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp_(min=0).clone()
