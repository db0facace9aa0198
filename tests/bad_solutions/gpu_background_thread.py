"""Verdict: wrong | refused | flaky. Returns at once; a thread launches the kernel later."""

import threading
import time

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


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)

        def work():
            time.sleep(0.05)
            gelu(x.data_ptr(), out.data_ptr(), x.numel(), 0)
            self.keep = x, out

        threading.Thread(target=work).start()
        return out
