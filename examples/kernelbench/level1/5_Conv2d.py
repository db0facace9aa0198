"""Square 2D convolution with bias, stride 1."""

import torch
import torch.nn as nn

batch = 16
in_channels = 32
out_channels = 64
size = 256

CASES = {"headline": {}, "small": dict(batch=2, size=21)}
GPU_ONLY = ("headline",)


class Model(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, padding: int = 0):
        super().__init__()
        self.conv2d = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2d(x)


def get_inputs(batch=batch, size=size):
    return [torch.randn(batch, in_channels, size, size)]


def get_init_inputs():
    return [in_channels, out_channels, 3, 1]


def work(model, x):
    """Input and weights read once, output written once; a multiply-add is two operations."""
    weight = model.conv2d.weight
    outputs = x.numel() // x.shape[1] * weight.shape[0]
    return dict(
        bytes=4 * (x.numel() + weight.numel() + outputs),
        flops=2 * outputs * weight[0].numel(),
    )
