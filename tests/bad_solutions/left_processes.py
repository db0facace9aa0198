"""Verdict: correct. Leaves a child, a grandchild in a session of its own and a thread behind."""

import subprocess
import torch

REFERENCE = "gelu"
subprocess.Popen(["sleep", "3131"])
subprocess.Popen(["sh", "-c", "setsid sleep 3132 & exit 0"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)
