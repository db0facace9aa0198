"""Inclusive sum of every row: warp scans by shfl_up, warp totals in shared memory. Stable ABI."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <cuda_runtime.h>

using torch::stable::Tensor;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

__device__ int warp_scan(int v, int lane) {
  for (int d = 1; d < 32; d <<= 1) {
    const int left = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v += left;
  }
  return v;
}

__global__ void scan_kernel(const int* __restrict__ x, int* __restrict__ out, int cols) {
  __shared__ int smem_total[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int* in = x + static_cast<long long>(blockIdx.x) * cols;
  int* to = out + static_cast<long long>(blockIdx.x) * cols;
  int carry = 0;
  for (int base = 0; base < cols; base += kThreads) {
    const int col = base + threadIdx.x;
    int v = warp_scan(col < cols ? in[col] : 0, lane);
    if (lane == 31) smem_total[warp] = v;
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += smem_total[w];
      all += smem_total[w];
    }
    if (col < cols) to[col] = carry + before + v;
    carry += all;
    __syncthreads();
  }
}

Tensor scan(const Tensor& x) {
  Tensor out = torch::stable::empty_like(x);
  const int rows = x.size(0), cols = x.size(1);
  if (rows == 0 || cols == 0) return out;
  scan_kernel<<<rows, kThreads>>>(static_cast<const int*>(x.data_ptr()),
                                  static_cast<int*>(out.data_ptr()), cols);
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "scan: the launch failed");
  return out;
}

STABLE_TORCH_LIBRARY(program_scan, m) { m.def("scan(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(program_scan, CUDA, m) { m.impl("scan", TORCH_BOX(&scan)); }
"""

load_inline(
    name="program_scan",
    cpp_sources="",
    cuda_sources=CUDA,
    functions=None,
    is_python_module=False,
    no_implicit_headers=True,
)


def run(x: torch.Tensor) -> torch.Tensor:
    """(rows, cols) int32 -> the inclusive sums, int32."""
    return torch.ops.program_scan.scan(x)
