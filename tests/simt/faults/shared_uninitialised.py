"""Shared memory is read where nobody wrote it.

finding: shared memory read before written
line: FAULT
sanitizer: initcheck
"""

import torch
from torch.utils.cpp_extension import load_inline

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
#include <stdexcept>
#include <cuda_runtime.h>

void check_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

__global__ void broken_kernel(const float* x, float* y, int n) {
  const int t = threadIdx.x;
  __shared__ float smem[64];
  if (t < 48) smem[t] = x[t];
  __syncthreads();
  y[t] = smem[t];  // FAULT
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  const int t = threadIdx.x;
  __shared__ float smem[64];
  smem[t] = t < 48 ? x[t] : 0.0f;
  __syncthreads();
  y[t] = smem[t];
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  broken_kernel<<<1, 64>>>(from, to, n);
  check_launch();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  honest_kernel<<<1, 64>>>(from, to, n);
  check_launch();
}
"""

module = load_inline(
    name="fault_shared_uninitialised",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=None,
    no_implicit_headers=True,
)


def broken() -> torch.Tensor:
    """Run the broken kernel."""
    return _run(module.broken)


def honest() -> torch.Tensor:
    """Run its honest twin."""
    return _run(module.honest)


def _run(entry) -> torch.Tensor:
    x = torch.arange(64, device="cuda", dtype=torch.float32)
    y = torch.empty(64, device="cuda")
    entry(x.data_ptr(), y.data_ptr(), x.numel())
    return y
