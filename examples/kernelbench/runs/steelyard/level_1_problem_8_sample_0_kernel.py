"""Argmax over the middle dimension: a block owns 32 neighbouring columns of one matrix.

Each of its 8 warps walks every eighth row, reading 128 bytes in one piece; the 8 candidates of a
column meet in shared memory. Of equal values the lower row wins, and NaN beats every number, as in
torch. Traffic: the input, once.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

constexpr int kColumns = 32;
constexpr int kWarps = 8;

struct Candidate {
  float value;
  int row;  // -1: none yet
};

__device__ Candidate better(Candidate a, Candidate b) {
  if (a.row < 0 || b.row < 0) return a.row < 0 ? b : a;
  const bool a_nan = isnan(a.value), b_nan = isnan(b.value);
  if (a_nan != b_nan) return a_nan ? a : b;
  if (a_nan || a.value == b.value) return a.row < b.row ? a : b;
  return a.value > b.value ? a : b;
}

__global__ void argmax_kernel(const float* __restrict__ x, int64_t* __restrict__ out, int rows,
                              int columns) {
  __shared__ Candidate smem_best[kWarps][kColumns];
  const int column = blockIdx.x * kColumns + threadIdx.x;
  const float* matrix = x + int64_t(blockIdx.y) * rows * columns;
  Candidate best{0.0f, -1};
  if (column < columns) {
    for (int row = threadIdx.y; row < rows; row += kWarps) {
      best = better(best, {matrix[int64_t(row) * columns + column], row});
    }
  }
  smem_best[threadIdx.y][threadIdx.x] = best;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int warp = 1; warp < kWarps; ++warp) best = better(best, smem_best[warp][threadIdx.x]);
  out[int64_t(blockIdx.y) * columns + column] = best.row;
}

void forward(uintptr_t x, uintptr_t out, int64_t batch, int64_t rows, int64_t columns,
             uintptr_t stream) {
  if (batch > 65535 || rows > INT32_MAX || columns > INT32_MAX) {
    throw std::runtime_error("argmax: more than 65535 matrices or 2^31 rows or columns");
  }
  if (rows == 0) throw std::runtime_error("argmax: no rows to choose from");
  if (batch * columns == 0) return;
  const dim3 grid((columns + kColumns - 1) / kColumns, batch);
  argmax_kernel<<<grid, dim3(kColumns, kWarps), 0, (cudaStream_t)stream>>>(
      (const float*)x, (int64_t*)out, rows, columns);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("argmax: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t out, int64_t batch, int64_t rows, int64_t columns,
             uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline("kb_argmax", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        if dim != 1:
            raise ValueError(f"this kernel reduces dimension 1, not {dim}")

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], x.shape[2], dtype=torch.int64, device=x.device)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        ext.forward(x.data_ptr(), out.data_ptr(), *x.shape, stream)
        return out
