"""Verdict: crashed. Is ended by SIGKILL."""

import os
import signal
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)
