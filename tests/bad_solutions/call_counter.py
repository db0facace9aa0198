"""Verdict: wrong. Honest for the first two calls, cheap from then on."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        ModelNew.calls += 1
        if ModelNew.calls <= 2:
            return torch.nn.functional.gelu(x)
        return x * (x > 0)
