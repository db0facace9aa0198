"""Cooperative groups: block, tiles of 32 and 8, shfl, reduce, ballot. Full headers."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <int kTile>
__device__ float tile_sum(const cg::thread_block_tile<kTile>& tile, float v) {
  for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
  return tile.shfl(v, 0);
}

__global__ void tiles_kernel(const float* __restrict__ x, float* __restrict__ sum8,
                             float* __restrict__ sum_block, int* __restrict__ positive) {
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto tile = cg::tiled_partition<8>(block);
  __shared__ float smem[32];
  const unsigned i = block.group_index().x * block.size() + block.thread_rank();
  const float v = x[i];

  const float s = tile_sum<8>(tile, v);
  if (tile.thread_rank() == 0) sum8[i / 8] = s;

  const float w = cg::reduce(warp, v, cg::plus<float>());
  if (warp.thread_rank() == 0) smem[warp.meta_group_rank()] = w;
  block.sync();
  if (warp.meta_group_rank() == 0) {
    float all = warp.thread_rank() < warp.meta_group_size() ? smem[warp.thread_rank()] : 0.0f;
    all = cg::reduce(warp, all, cg::plus<float>());
    if (warp.thread_rank() == 0) sum_block[block.group_index().x] = all;
  }
  const unsigned votes = warp.ballot(v > 0.0f);
  if (warp.thread_rank() == 0) atomicAdd(positive, __popc(votes));
}

std::vector<torch::Tensor> tiles(torch::Tensor x, int64_t threads) {
  const int64_t blocks = x.numel() / threads;
  auto sum8 = torch::empty({x.numel() / 8}, x.options());
  auto sum_block = torch::empty({blocks}, x.options());
  auto positive = torch::zeros({1}, x.options().dtype(torch::kInt));
  cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
  tiles_kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(
      x.data_ptr<float>(), sum8.data_ptr<float>(), sum_block.data_ptr<float>(),
      positive.data_ptr<int>());
  AT_CUDA_CHECK(cudaGetLastError());
  return {sum8, sum_block, positive};
}
"""

module = load_inline(
    name="program_group_tiles",
    cpp_sources="std::vector<torch::Tensor> tiles(torch::Tensor x, int64_t threads);",
    cuda_sources=CUDA,
    functions=["tiles"],
)


def run(x: torch.Tensor, threads: int) -> list[torch.Tensor]:
    """(n,) fp32, n a multiple of threads -> sums of 8, sums of a block, count of positives."""
    return module.tiles(x, threads)
