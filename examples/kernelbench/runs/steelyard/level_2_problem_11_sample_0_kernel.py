"""Linear, GELU, scale and clamp in one kernel: nothing between them reaches memory.

A block owns a 64 x 64 tile of the output, a thread 4 x 4 of it; tiles of input and weight, 16
features deep, go through shared memory, and the chain is applied to the sums in registers.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

constexpr int kTile = 64;   // rows and columns of the output in a block
constexpr int kDepth = 16;  // features at a time
constexpr int kEach = 4;    // rows and columns of the output in a thread
constexpr int kSide = kTile / kEach;
constexpr int kThreads = kSide * kSide;

struct Chain {
  float scale, bound;
};

__device__ float finished(float x, Chain chain) {
  x = 0.5f * x * (1.0f + erff(x * 0.70710678f)) * chain.scale;
  return x > chain.bound ? chain.bound : x;  // a comparison keeps NaN, as torch.clamp does
}

// out = chain(x weight^T + bias). Both factors are stored by rows of features, so both tiles are
// stored transposed. Thread (row, column) owns output rows row + 16i and columns column + 16j.
__global__ void __launch_bounds__(kThreads)
linear_chain_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                    const float* __restrict__ bias, float* __restrict__ out, int64_t rows,
                    int64_t features, int64_t columns, Chain chain) {
  __shared__ float smem_x[kDepth][kTile + 1], smem_weight[kDepth][kTile + 1];
  const int64_t top = int64_t(blockIdx.y) * kTile, left = int64_t(blockIdx.x) * kTile;
  const int row = threadIdx.x / kSide, column = threadIdx.x % kSide;
  float sum[kEach][kEach] = {};
  for (int64_t depth = 0; depth < features; depth += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int64_t at = depth + i % kDepth, x_row = top + i / kDepth, w_row = left + i / kDepth;
      const bool inside = at < features;
      smem_x[i % kDepth][i / kDepth] = inside && x_row < rows ? x[x_row * features + at] : 0.0f;
      smem_weight[i % kDepth][i / kDepth] =
          inside && w_row < columns ? weight[w_row * features + at] : 0.0f;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      float left_factor[kEach], right_factor[kEach];
      for (int i = 0; i < kEach; ++i) left_factor[i] = smem_x[d][row + i * kSide];
      for (int j = 0; j < kEach; ++j) right_factor[j] = smem_weight[d][column + j * kSide];
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sum[i][j] += left_factor[i] * right_factor[j];
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const int64_t out_row = top + row + i * kSide, out_column = left + column + j * kSide;
      if (out_row >= rows || out_column >= columns) continue;
      out[out_row * columns + out_column] = finished(sum[i][j] + bias[out_column], chain);
    }
  }
}

void forward(uintptr_t x, uintptr_t weight, uintptr_t bias, uintptr_t out, int64_t rows,
             int64_t features, int64_t columns, float scale, float bound, uintptr_t stream) {
  if (rows * columns == 0) return;
  const int64_t tiles = (rows + kTile - 1) / kTile;
  if (tiles > 65535) throw std::runtime_error("linear_chain: more than 65535 x 64 rows");
  const dim3 grid((columns + kTile - 1) / kTile, tiles);
  linear_chain_kernel<<<grid, kThreads, 0, (cudaStream_t)stream>>>(
      (const float*)x, (const float*)weight, (const float*)bias, (float*)out, rows, features,
      columns, Chain{scale, bound});
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("linear_chain: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t weight, uintptr_t bias, uintptr_t out, int64_t rows,
             int64_t features, int64_t columns, float scale, float bound, uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline(
    "kb_linear_chain", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True
)


class ModelNew(nn.Module):
    """Holds its parameters in an nn.Linear, made as the reference makes it: equal seeds, equal
    weights."""

    def __init__(self, in_features, out_features, scale, bound):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.chain = (scale, bound)

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.gemm.weight, self.gemm.bias
        out = x.new_empty(len(x), len(weight))
        tensors = (t.data_ptr() for t in (x, weight, bias, out))
        stream = torch.cuda.current_stream(x.device).cuda_stream
        ext.forward(*tensors, *x.shape, len(weight), *self.chain, stream)
        return out
