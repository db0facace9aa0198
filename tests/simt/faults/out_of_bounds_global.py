"""The last block reads past the end of x: the guard is missing."""

import torch
from torch.utils.cpp_extension import load_inline

KIND = "out of bounds"
CPP = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void broken(std::uintptr_t x, std::uintptr_t y, int n);
void honest(std::uintptr_t x, std::uintptr_t y, int n);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("broken", &broken);
  m.def("honest", &honest);
}
"""
CUDA = r"""
#include <cstdint>
#include <cuda_runtime.h>

__global__ void broken_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2 * x[i];  // FAULT
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* to = reinterpret_cast<float*>(y);
  broken_kernel<<<(n + 63) / 64, 64>>>(reinterpret_cast<const float*>(x), to, n);
  cudaGetLastError();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* to = reinterpret_cast<float*>(y);
  honest_kernel<<<(n + 63) / 64, 64>>>(reinterpret_cast<const float*>(x), to, n);
  cudaGetLastError();
}
"""

module = load_inline(
    "fault_out_of_bounds_global", CPP, CUDA, functions=None, no_implicit_headers=True
)


def run(which: str) -> torch.Tensor:
    """`which`: broken or honest -> (100,) fp32."""
    x = torch.ones(100, device="cuda")
    y = torch.empty(100, device="cuda")
    getattr(module, which)(x.data_ptr(), y.data_ptr(), 100)
    return y
