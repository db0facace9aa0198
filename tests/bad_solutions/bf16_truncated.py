"""Verdict: wrong. Keeps four bits of the product's mantissa."""

import torch

REFERENCE = "bf16"


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        bits = (x * y).view(torch.int16)
        return (bits & ~0x7).view(torch.bfloat16)
