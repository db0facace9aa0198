"""Verdict: correct. Repeats the problem's get_inputs and Model, as many solution files do."""

import torch

REFERENCE = "gelu"


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(37, 65)]


def get_init_inputs():
    return []


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))
