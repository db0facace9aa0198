"""Matrix product of two rectangular fp32 matrices."""

import torch
import torch.nn as nn

M = 2048
K = 8192
N = 4096

CASES = {"headline": {}, "small": dict(M=70, K=93, N=131)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs(M=M, K=K, N=N):
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []


def work(model, a, b):
    """Both factors read once, the product written once; a multiply-add is two operations."""
    (m, k), n = a.shape, b.shape[1]
    return dict(bytes=4 * (m * k + k * n + m * n), flops=2 * m * k * n)
