"""Matrix transpose through a padded 32 x 33 shared tile, with accessors. Full headers."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

#define TILE 32
#define ROWS 8

template <typename T>
__global__ void transpose_kernel(const torch::PackedTensorAccessor32<T, 2> x,
                                 torch::PackedTensorAccessor32<T, 2> out) {
  __shared__ T tile[TILE][TILE + 1];
  const int rows = x.size(0), cols = x.size(1);
  int col = blockIdx.x * TILE + threadIdx.x;
  for (int j = threadIdx.y; j < TILE; j += ROWS) {
    const int row = blockIdx.y * TILE + j;
    if (row < rows && col < cols) tile[j][threadIdx.x] = x[row][col];
  }
  __syncthreads();
  const int to_col = blockIdx.y * TILE + threadIdx.x;
  for (int j = threadIdx.y; j < TILE; j += ROWS) {
    const int to_row = blockIdx.x * TILE + j;
    if (to_row < cols && to_col < rows) out[to_row][to_col] = tile[threadIdx.x][j];
  }
}

torch::Tensor transpose(torch::Tensor x) {
  auto out = torch::empty({x.size(1), x.size(0)}, x.options());
  dim3 grid((x.size(1) + TILE - 1) / TILE, (x.size(0) + TILE - 1) / TILE), block(TILE, ROWS);
  AT_DISPATCH_FLOATING_TYPES(x.type(), "transpose", ([&] {
    transpose_kernel<scalar_t><<<grid, block>>>(
        x.packed_accessor32<scalar_t, 2>(), out.packed_accessor32<scalar_t, 2>());
  }));
  TORCH_CHECK(cudaPeekAtLastError() == cudaSuccess, "transpose: the launch failed");
  return out;
}
"""

module = load_inline(
    name="program_transpose",
    cpp_sources="torch::Tensor transpose(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["transpose"],
    with_cuda=True,
)


def run(x: torch.Tensor) -> torch.Tensor:
    """(rows, cols) fp32 or fp64, any strides -> (cols, rows) contiguous."""
    return module.transpose(x)
