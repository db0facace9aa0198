"""Verdict: wrong. Brings inputs and a reference of its own, for which it would be right."""

import torch

REFERENCE = "gelu"


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 0


def get_inputs():
    return [torch.zeros(37, 65)]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 0
