"""The last block to finish adds up the parts, but no fence precedes the counter.

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
#include <cuda_runtime.h>

void check_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

__global__ void broken_kernel(const float* x, float* y, int n) {
  __shared__ bool smem_last;
  if (threadIdx.x == 0) {
    y[2 + blockIdx.x] = x[blockIdx.x];  // OTHER
    smem_last = atomicAdd(reinterpret_cast<unsigned*>(y), 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (smem_last && threadIdx.x == 0) {
    float sum = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) sum += y[2 + b];  // FAULT
    y[1] = sum;
  }
}

__global__ void honest_kernel(const float* x, float* y, int n) {
  __shared__ bool smem_last;
  if (threadIdx.x == 0) {
    y[2 + blockIdx.x] = x[blockIdx.x];
    __threadfence();
    smem_last = atomicAdd(reinterpret_cast<unsigned*>(y), 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (smem_last && threadIdx.x == 0) {
    float sum = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) sum += y[2 + b];
    y[1] = sum;
  }
}

void broken(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  broken_kernel<<<8, 64>>>(from, to, n);
  check_launch();
}

void honest(std::uintptr_t x, std::uintptr_t y, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  honest_kernel<<<8, 64>>>(from, to, n);
  check_launch();
}
"""

module = load_inline(
    name="fault_block_flag",
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
    y = torch.zeros(10, device="cuda")
    entry(x.data_ptr(), y.data_ptr(), x.numel())
    return y
