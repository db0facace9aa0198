"""A float4 is loaded from an address that is no multiple of 16."""

import torch
from torch.utils.cpp_extension import load_inline

KIND = "misaligned access"
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
  const float4 v = *reinterpret_cast<const float4*>(x + 1 + 4 * threadIdx.x);  // FAULT
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  const float4 v = *reinterpret_cast<const float4*>(x + 4 * threadIdx.x);
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* to = reinterpret_cast<float*>(y);
  broken_kernel<<<1, 8>>>(reinterpret_cast<const float*>(x), to, n);
  cudaGetLastError();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* to = reinterpret_cast<float*>(y);
  honest_kernel<<<1, 8>>>(reinterpret_cast<const float*>(x), to, n);
  cudaGetLastError();
}
"""

module = load_inline("fault_misaligned", CPP, CUDA, functions=None, no_implicit_headers=True)


def run(which: str) -> torch.Tensor:
    """`which`: broken or honest -> (64,) fp32."""
    x = torch.ones(64, device="cuda")
    y = torch.empty(64, device="cuda")
    getattr(module, which)(x.data_ptr(), y.data_ptr(), 64)
    return y
