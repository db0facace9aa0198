"""Verdict: crashed. Native code aborts."""

import ctypes
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.CDLL(None).abort()
