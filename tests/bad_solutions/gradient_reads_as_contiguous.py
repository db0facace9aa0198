"""Verdict: wrong. The backward reads the gradient's memory as if it were contiguous."""

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
        flat = torch.zeros(x.numel())
        memory = grad.as_strided((grad.untyped_storage().nbytes() // 4,), (1,), 0)
        flat[: memory.numel()] = memory[: flat.numel()]
        grad = flat.view_as(x)
        return 2 * grad * x * w, grad * x * x


class ModelNew(torch.nn.Module):
    def forward(self, x, w):
        return Square.apply(x, w)
