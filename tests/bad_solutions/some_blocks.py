"""Verdict: wrong. Computes three blocks of four, a different one missing each time."""

import random
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.nn.functional.gelu(x)
        start = random.randrange(4) * (x.shape[0] // 4)
        out[start : start + x.shape[0] // 4] = 0
        return out
