"""Verdict: wrong. A list of one tensor instead of a tensor."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return [torch.nn.functional.gelu(x)]
