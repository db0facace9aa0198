"""Verdict: wrong. The inputs happened to be positive, so relu was left out."""

import torch

REFERENCE = "relu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clone()
