"""Verdict: correct. Works on a stream of its own, which waits and is waited for."""

import torch
from torch.utils.cpp_extension import load_inline

REFERENCE = "gelu_gpu"
DEVICE = "cuda"
SOURCE = r"""
#include <cuda_runtime.h>
#include <pybind11/pybind11.h>
#include <stdexcept>

__global__ void gelu_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

void gelu(size_t x, size_t out, int n, size_t stream) {
  auto s = reinterpret_cast<cudaStream_t>(stream);
  gelu_kernel<<<(n + 255) / 256, 256, 0, s>>>((const float*)x, (float*)out, n);
  if (cudaError_t error = cudaGetLastError()) throw std::runtime_error(cudaGetErrorString(error));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gelu", &gelu); }
"""
gelu = load_inline("bad_gelu", "", SOURCE, no_implicit_headers=True).gelu

side = torch.cuda.Stream()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        side.wait_stream(torch.cuda.current_stream())
        gelu(x.data_ptr(), out.data_ptr(), x.numel(), side.cuda_stream)
        torch.cuda.current_stream().wait_stream(side)
        return out
