"""Verdict: out of memory. Asks for more than the card has."""

import torch

REFERENCE = "gelu_gpu"
DEVICE = "cuda"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) + torch.empty(1 << 42, device=x.device)[: x.shape[1]]
