"""Verdict: wrong. Returns at once; a thread fills the result in later."""

import threading
import time
import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)

        def work():
            time.sleep(0.3)
            out.copy_(torch.nn.functional.gelu(x))

        threading.Thread(target=work, daemon=True).start()
        return out
