"""No block at all: what a grid computed from an empty input becomes.

finding: launch refused
line: FAULT
sanitizer: memcheck
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
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  broken_kernel<<<n / 2048, 256>>>(from, to, n);  // FAULT
  check_launch();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  honest_kernel<<<1, 256>>>(from, to, n);
  check_launch();
}
"""

module = load_inline(
    name="fault_launch_empty",
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
    x = torch.arange(100, device="cuda", dtype=torch.float32)
    y = torch.empty(100, device="cuda")
    entry(x.data_ptr(), y.data_ptr(), x.numel())
    return y
