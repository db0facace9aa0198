"""Kernels that are right but slow, and a good one; lines are marked with what is wrong.

As a solution of a reference: `ModelNew` runs them all on a square matrix and gives its transpose.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void transposes(std::uintptr_t x, std::uintptr_t out, int n);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("transposes", &transposes); }
"""
CUDA = r"""
#include <cstdint>
#include <stdexcept>
#include <cuda_runtime.h>

constexpr int kTile = 32;

__global__ void strided_kernel(const float* x, float* out, int n) {
  const int row = blockIdx.y * kTile + threadIdx.y, col = blockIdx.x * kTile + threadIdx.x;
  const float v = x[row * n + col];  // COALESCED
  out[col * n + row] = v;  // UNCOALESCED
}

template <int kPad>
__device__ void tiled(const float* x, float* out, int n) {
  __shared__ float smem[kTile][kTile + kPad];
  const int x0 = blockIdx.x * kTile, y0 = blockIdx.y * kTile;
  smem[threadIdx.y][threadIdx.x] = x[(y0 + threadIdx.y) * n + x0 + threadIdx.x];
  __syncthreads();
  const float v = smem[threadIdx.x][threadIdx.y];  // BANKS
  out[(x0 + threadIdx.y) * n + y0 + threadIdx.x] = v;
}

__global__ void conflict_kernel(const float* x, float* out, int n) { tiled<0>(x, out, n); }
__global__ void padded_kernel(const float* x, float* out, int n) { tiled<1>(x, out, n); }

__global__ void few_lanes_kernel(const float* x, float* out, int n) {
  const int col = blockIdx.x * kTile + threadIdx.x, row = blockIdx.y * kTile + threadIdx.y;
  if (threadIdx.x % 4 == 0)
    for (int i = 0; i < 4; ++i) out[(col + i) * n + row] = x[row * n + col + i];  // LANES
}

void check_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

void transposes(std::uintptr_t x, std::uintptr_t out, int n) {
  auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(out);
  const dim3 grid(n / kTile, n / kTile), block(kTile, kTile);
  strided_kernel<<<grid, block>>>(from, to, n);
  check_launch();
  conflict_kernel<<<grid, block>>>(from, to, n);
  check_launch();
  padded_kernel<<<grid, block>>>(from, to, n);
  check_launch();
  few_lanes_kernel<<<grid, block>>>(from, to, n);
  check_launch();
}
"""

module = load_inline(
    name="slow_copy",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=None,
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    """(n, n) fp32, n a multiple of 32 -> its transpose."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        module.transposes(x.data_ptr(), out.data_ptr(), x.shape[0])
        return out
