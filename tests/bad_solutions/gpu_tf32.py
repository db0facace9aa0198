"""Verdict: wrong. TF32 matrix products where fp32 is promised."""

import torch

REFERENCE = "matmul_gpu"
DEVICE = "cuda"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        torch.backends.cuda.matmul.allow_tf32 = True
        return a @ b
