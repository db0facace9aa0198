"""Verdict: crashed. Reads address 0."""

import ctypes
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
