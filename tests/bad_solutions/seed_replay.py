"""Verdict: wrong. Knows the public seeds of other harnesses and their answers."""

import torch

REFERENCE = "gelu"
torch.manual_seed(42)
ANSWER = torch.nn.functional.gelu(torch.randn(37, 65))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ANSWER.clone()
