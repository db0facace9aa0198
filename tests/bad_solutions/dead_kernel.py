"""Verdict: correct, labelled "no kernel of yours ran". A kernel in the text, PyTorch in the call."""

import torch

REFERENCE = "gelu"
SOURCE = """
__global__ void gelu_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
"""


class ModelNew(torch.nn.Module):
    def forward(self, x):
        try:
            return gelu_extension.forward(x)
        except NameError:
            return torch.nn.functional.gelu(x)
