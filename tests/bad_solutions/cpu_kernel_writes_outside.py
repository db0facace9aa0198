"""Verdict: wrong. A kernel, run on the CPU, that writes sixteen bytes behind its input."""

import torch
from torch.utils.cpp_extension import load_inline

REFERENCE = "gelu"
SOURCE = r"""
#include <cuda_runtime.h>
#include <pybind11/pybind11.h>
#include <stdexcept>

__global__ void gelu_kernel(const float* x, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n + 4) const_cast<float*>(x)[n + (i & 3)] = 0;
  if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

void gelu(size_t x, size_t out, int n, size_t stream) {
  auto s = reinterpret_cast<cudaStream_t>(stream);
  gelu_kernel<<<(n + 255) / 256, 256, 0, s>>>((const float*)x, (float*)out, n);
  if (cudaError_t error = cudaGetLastError()) throw std::runtime_error(cudaGetErrorString(error));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gelu", &gelu); }
"""
gelu = load_inline("bad_outside", "", SOURCE, no_implicit_headers=True).gelu


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        gelu(x.data_ptr(), out.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        return out
