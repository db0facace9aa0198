"""Verdict: wrong. Makes every comparison in its own process true and returns nonsense."""

import statistics
import torch

REFERENCE = "gelu"
torch.allclose = torch.equal = lambda *a, **k: True
torch.testing.assert_close = lambda *a, **k: None
torch.Tensor.__eq__ = lambda self, other: torch.ones((), dtype=torch.bool)
statistics.median = lambda values: 1e-9


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ones(x.shape)
