"""Verdict: correct. Writes through a raw pointer, to memory of its own."""

import ctypes
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.nn.functional.gelu(x)
        scratch = torch.empty(64)
        ctypes.memset(scratch.data_ptr(), 0, 256)
        return out + scratch[0]
