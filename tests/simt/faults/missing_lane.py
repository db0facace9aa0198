"""Lanes that have left the kernel are still read by a shuffle."""

import torch
from torch.utils.cpp_extension import load_inline

KIND = "missing lane"
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
  if (threadIdx.x >= 20) return;
  float v = x[threadIdx.x];
  v += __shfl_down_sync(0xffffffffu, v, 16);  // FAULT
  y[threadIdx.x] = v;
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  float v = threadIdx.x < 20 ? x[threadIdx.x] : 0;
  v += __shfl_down_sync(0xffffffffu, v, 16);
  y[threadIdx.x] = v;
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* to = reinterpret_cast<float*>(y);
  broken_kernel<<<1, 32>>>(reinterpret_cast<const float*>(x), to, n);
  cudaGetLastError();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* to = reinterpret_cast<float*>(y);
  honest_kernel<<<1, 32>>>(reinterpret_cast<const float*>(x), to, n);
  cudaGetLastError();
}
"""

module = load_inline("fault_missing_lane", CPP, CUDA, functions=None, no_implicit_headers=True)


def run(which: str) -> torch.Tensor:
    """`which`: broken or honest -> (64,) fp32."""
    x = torch.ones(64, device="cuda")
    y = torch.empty(64, device="cuda")
    getattr(module, which)(x.data_ptr(), y.data_ptr(), 64)
    return y
