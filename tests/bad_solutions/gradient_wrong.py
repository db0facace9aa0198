"""Verdict: wrong. The backward forgets a factor of two."""

import torch

REFERENCE = "square"


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * x * w, grad * x * x


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        return Square.apply(x, w)
