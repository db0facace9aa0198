"""Verdict: wrong. Leaves the last percent of the elements at zero."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.nn.functional.gelu(x)
        out.view(-1)[-(x.numel() // 100) :] = 0
        return out
