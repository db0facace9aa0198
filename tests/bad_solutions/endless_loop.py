"""Verdict: timed out. A Python loop that never ends."""

import torch

REFERENCE = "gelu"
LIMIT_S = 12


class ModelNew(torch.nn.Module):
    def forward(self, x):
        while True:
            pass
