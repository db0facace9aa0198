"""Verdict: correct. Uses a thread and waits for it."""

import threading
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        thread = threading.Thread(target=lambda: out.copy_(torch.nn.functional.gelu(x)))
        thread.start()
        thread.join()
        return out
