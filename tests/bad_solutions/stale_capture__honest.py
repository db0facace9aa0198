"""Verdict: correct. A static input that is refreshed before each replay."""

import torch

REFERENCE = "gelu"


class ModelNew(torch.nn.Module):
    static = None

    def forward(self, x):
        if self.static is None:
            self.static = torch.empty_like(x)
        self.static.copy_(x)
        return torch.nn.functional.gelu(self.static)
