"""Verdict: crashed. Ends its process with code 0 in the middle of a call."""

import os
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        print("PASS", flush=True)
        os._exit(0)
