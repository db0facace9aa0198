"""Each block reads its neighbour's result, but meets the grid only after that.

finding: race between blocks
line: FAULT, other OTHER
sanitizer: none
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
#include <cooperative_groups.h>
#include <cuda_runtime.h>

void check_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

__global__ void broken_kernel(const float* x, float* y, int n) {
  __shared__ float smem_kept;
  if (threadIdx.x == 0) {
    y[blockIdx.x] = x[blockIdx.x];                // OTHER
    smem_kept = y[(blockIdx.x + 1) % gridDim.x];  // FAULT
  }
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 1) y[n + blockIdx.x] = smem_kept;
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  __shared__ float smem_kept;
  if (threadIdx.x == 0) {
    y[blockIdx.x] = x[blockIdx.x];
    smem_kept = x[(blockIdx.x + 1) % gridDim.x];
  }
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 1) y[n + blockIdx.x] = y[(blockIdx.x + 1) % gridDim.x] + smem_kept;
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 2) y[(blockIdx.x + 2) % gridDim.x] = smem_kept;
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  void* arguments[] = {&x, &y, &n};
  cudaLaunchCooperativeKernel((void*)broken_kernel, 8, 64, arguments, 0, nullptr);
  check_launch();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  void* arguments[] = {&x, &y, &n};
  cudaLaunchCooperativeKernel((void*)honest_kernel, 8, 64, arguments, 0, nullptr);
  check_launch();
}
"""

module = load_inline(
    name="fault_grid_order",
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
    x = torch.arange(8, device="cuda", dtype=torch.float32)
    y = torch.zeros(16, device="cuda")
    entry(x.data_ptr(), y.data_ptr(), x.numel())
    return y
