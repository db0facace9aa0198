"""Fused chain: linear layer, exact GELU, times a constant, held below a bound."""

import torch
import torch.nn as nn

batch = 4096
in_features = 2048
out_features = 4096

CASES = {"headline": {}, "small": dict(batch=37, in_features=83, out_features=101)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int, scale: float, bound: float):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.scale = scale
        self.bound = bound

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.gelu(self.gemm(x)) * self.scale
        return torch.clamp(x, max=self.bound)


def get_inputs(batch=batch, in_features=in_features, out_features=out_features):
    return [torch.randn(batch, in_features)]


def get_init_inputs(in_features=in_features, out_features=out_features, **sizes):
    return [in_features, out_features, 2.0, 1.5]


def work(model, x):
    """Input, weights and bias read once, output written once."""
    features, inner = model.gemm.weight.shape
    moved = x.numel() + features * (inner + 1) + len(x) * features
    return dict(bytes=4 * moved, flops=2 * len(x) * features * inner)
