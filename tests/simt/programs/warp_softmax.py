"""Row softmax, one warp per row, max and sum by xor shuffles; dispatch over types. Full headers."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cfloat>

constexpr unsigned kFull = 0xffffffffu;

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(kFull, v, d));
  return v;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(kFull, v, d);
  return v;
}

template <typename scalar_t>
__global__ void softmax_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ out, int rows,
                               int cols) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const scalar_t* in = x + static_cast<int64_t>(row) * cols;
  scalar_t* to = out + static_cast<int64_t>(row) * cols;
  float top = -FLT_MAX;
  for (int col = threadIdx.x; col < cols; col += 32) top = fmaxf(top, static_cast<float>(in[col]));
  top = warp_max(top);
  float sum = 0.0f;
  for (int col = threadIdx.x; col < cols; col += 32)
    sum += __expf(static_cast<float>(in[col]) - top);
  sum = warp_sum(sum);
  for (int col = threadIdx.x; col < cols; col += 32)
    to[col] = static_cast<scalar_t>(__expf(static_cast<float>(in[col]) - top) / sum);
}

torch::Tensor warp_softmax(torch::Tensor x) {
  TORCH_CHECK(x.dim() == 2 && x.is_contiguous(), "warp_softmax: x must be a contiguous matrix");
  const at::cuda::CUDAGuard guard(x.device());
  auto out = torch::empty_like(x);
  const int rows = x.size(0), cols = x.size(1);
  if (rows == 0) return out;
  const dim3 block(32, 4);
  auto stream = at::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, x.scalar_type(), "warp_softmax", ([&] {
        softmax_kernel<scalar_t><<<(rows + 3) / 4, block, 0, stream>>>(
            x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), rows, cols);
      }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

module = load_inline(
    name="program_warp_softmax",
    cpp_sources=["torch::Tensor warp_softmax(torch::Tensor x);"],
    cuda_sources=[CUDA],
    functions={"warp_softmax": "softmax of every row"},
    extra_cuda_cflags=["-O3", "--use_fast_math"],
)


def run(x: torch.Tensor) -> torch.Tensor:
    """(rows, cols) -> (rows, cols), any floating type."""
    return module.warp_softmax(x)
