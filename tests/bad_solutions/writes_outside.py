"""Verdict: wrong. Writes eight bytes behind its input."""

import ctypes
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.memset(x.data_ptr() + x.numel() * 4, 0, 8)
        return torch.nn.functional.gelu(x)
