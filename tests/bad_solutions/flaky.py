"""Verdict: flaky. Now and then an element is off."""

import random
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x):
        ModelNew.calls += 1
        out = torch.nn.functional.gelu(x)
        if ModelNew.calls % 7 == 3:
            out[random.randrange(x.shape[0]), 0] += 1
        return out
