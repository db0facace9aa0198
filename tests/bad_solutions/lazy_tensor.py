"""Verdict: wrong. A Tensor subclass that computes when somebody looks."""

import torch

REFERENCE = "gelu"


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        plain = [a.value() if isinstance(a, Lazy) else a for a in args]
        return function(*plain, **(kwargs or {}))

    def value(self):
        return torch.nn.functional.gelu(self.source)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        lazy = torch.Tensor._make_subclass(Lazy, torch.empty_like(x))
        lazy.source = x
        return lazy
