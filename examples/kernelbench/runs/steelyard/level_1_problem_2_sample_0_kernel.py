"""Mean over the middle dimension: a block owns 32 neighbouring columns of one matrix.

Each of its 8 warps walks every eighth row, so that a warp reads 128 bytes in one piece; the eight
partial sums of a column meet in shared memory. Traffic: the input, once.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

constexpr int kColumns = 32;
constexpr int kWarps = 8;

__global__ void mean_rows_kernel(const float* __restrict__ x, float* __restrict__ out, int rows,
                                 int columns) {
  __shared__ float smem_sum[kWarps][kColumns];
  const int column = blockIdx.x * kColumns + threadIdx.x;
  const float* matrix = x + int64_t(blockIdx.y) * rows * columns;
  float sum = 0.0f;
  if (column < columns) {
    for (int row = threadIdx.y; row < rows; row += kWarps) {
      sum += matrix[int64_t(row) * columns + column];
    }
  }
  smem_sum[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += smem_sum[warp][threadIdx.x];
  out[int64_t(blockIdx.y) * columns + column] = sum / rows;
}

void forward(uintptr_t x, uintptr_t out, int64_t batch, int64_t rows, int64_t columns,
             uintptr_t stream) {
  if (batch > 65535 || rows > INT32_MAX || columns > INT32_MAX) {
    throw std::runtime_error("mean_rows: more than 65535 matrices or 2^31 rows or columns");
  }
  if (batch * columns == 0) return;
  const dim3 grid((columns + kColumns - 1) / kColumns, batch);
  mean_rows_kernel<<<grid, dim3(kColumns, kWarps), 0, (cudaStream_t)stream>>>(
      (const float*)x, (float*)out, rows, columns);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("mean_rows: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t out, int64_t batch, int64_t rows, int64_t columns,
             uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline("kb_mean_rows", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        if dim != 1:
            raise ValueError(f"this kernel reduces dimension 1, not {dim}")

    def forward(self, x):
        x = x.contiguous()
        out = x.new_empty(x.shape[0], x.shape[2])
        stream = torch.cuda.current_stream(x.device).cuda_stream
        ext.forward(x.data_ptr(), out.data_ptr(), *x.shape, stream)
        return out
