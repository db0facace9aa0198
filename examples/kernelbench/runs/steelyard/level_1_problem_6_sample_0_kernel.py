"""Batch normalisation in train mode, two kernels.

The first cuts a channel's elements into up to 32 parts and leaves count, mean and squared deviation
of each (Chan's pairwise update: no difference of large sums). The second merges a channel's parts
in one warp, normalises, and its first block of a channel updates the running statistics.
Traffic: 12 bytes an element.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kParts = 32;  // of a channel: one lane each when they are merged

// Count, mean and sum of squared deviations from it.
struct Moments {
  float count, mean, squares;
};

__device__ Moments merge(Moments a, Moments b) {
  const float count = a.count + b.count;
  if (count == 0.0f) return a;
  const float apart = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

__device__ Moments warp_merge(Moments x) {
  for (int offset = 16; offset > 0; offset /= 2) {
    x = merge(x, {__shfl_xor_sync(0xffffffff, x.count, offset),
                  __shfl_xor_sync(0xffffffff, x.mean, offset),
                  __shfl_xor_sync(0xffffffff, x.squares, offset)});
  }
  return x;
}

// Where element i of a channel lies: images follow each other with all channels between them.
__device__ int64_t place(int64_t i, int channel, int channels, int64_t area) {
  return (i / area * channels + channel) * area + i % area;
}

__global__ void __launch_bounds__(kThreads)
moments_kernel(const float* __restrict__ x, Moments* __restrict__ parts, int channels,
               int64_t count, int64_t area) {
  __shared__ Moments smem_warp[kWarps];
  const int channel = blockIdx.x;
  Moments mine{};
  for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < count;
       i += int64_t(kParts) * kThreads) {
    mine = merge(mine, {1.0f, x[place(i, channel, channels, area)], 0.0f});
  }
  mine = warp_merge(mine);
  if (threadIdx.x % 32 == 0) smem_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  mine = warp_merge(threadIdx.x < kWarps ? smem_warp[threadIdx.x] : Moments{});
  if (threadIdx.x == 0) parts[channel * kParts + blockIdx.y] = mine;
}

struct Running {
  float *mean, *var;
  float momentum;
};

__global__ void __launch_bounds__(kThreads)
normalize_kernel(const float* __restrict__ x, const Moments* __restrict__ parts,
                 const float* __restrict__ weight, const float* __restrict__ bias,
                 float* __restrict__ out, Running running, int channels, int64_t count,
                 int64_t area, float eps) {
  __shared__ float smem_scale, smem_shift;
  const int channel = blockIdx.x;
  if (threadIdx.x < 32) {
    const Moments all = warp_merge(parts[channel * kParts + threadIdx.x]);
    if (threadIdx.x == 0) {
      const float scale = weight[channel] * rsqrtf(all.squares / all.count + eps);
      smem_scale = scale;
      smem_shift = bias[channel] - all.mean * scale;
      if (blockIdx.y == 0) {
        const float m = running.momentum, unbiased = all.squares / (all.count - 1.0f);
        running.mean[channel] = (1.0f - m) * running.mean[channel] + m * all.mean;
        running.var[channel] = (1.0f - m) * running.var[channel] + m * unbiased;
      }
    }
  }
  __syncthreads();
  const float scale = smem_scale, shift = smem_shift;
  for (int64_t i = int64_t(blockIdx.y) * kThreads + threadIdx.x; i < count;
       i += int64_t(gridDim.y) * kThreads) {
    const int64_t at = place(i, channel, channels, area);
    out[at] = x[at] * scale + shift;
  }
}

void forward(uintptr_t x, uintptr_t parts, uintptr_t weight, uintptr_t bias, uintptr_t out,
             uintptr_t running_mean, uintptr_t running_var, int64_t images, int channels,
             int64_t area, float momentum, float eps, uintptr_t stream) {
  const int64_t count = images * area;
  if (count < 2) throw std::runtime_error("batch_norm: two values per channel or more");
  const dim3 grid(channels, kParts);
  moments_kernel<<<grid, kThreads, 0, (cudaStream_t)stream>>>((const float*)x, (Moments*)parts,
                                                              channels, count, area);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("moments: launch failed");
  normalize_kernel<<<grid, kThreads, 0, (cudaStream_t)stream>>>(
      (const float*)x, (const Moments*)parts, (const float*)weight, (const float*)bias,
      (float*)out, Running{(float*)running_mean, (float*)running_var, momentum}, channels, count,
      area, eps);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("normalize: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t parts, uintptr_t weight, uintptr_t bias, uintptr_t out,
             uintptr_t running_mean, uintptr_t running_var, int64_t images, int channels,
             int64_t area, float momentum, float eps, uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline(
    "kb_batch_norm", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True
)


class ModelNew(nn.Module):
    """nn.BatchNorm2d holds the parameters and the running statistics; it computes nothing."""

    def __init__(self, features):
        super().__init__()
        self.bn = nn.BatchNorm2d(features)

    def forward(self, x):
        x = x.contiguous()
        bn, out = self.bn, torch.empty_like(x)
        parts = x.new_empty(x.shape[1], 32, 3)
        tensors = (x, parts, bn.weight, bn.bias, out, bn.running_mean, bn.running_var)
        images, channels = x.shape[:2]
        bn.num_batches_tracked += 1
        ext.forward(
            *(t.data_ptr() for t in tensors),
            images,
            channels,
            x[0, 0].numel(),
            bn.momentum,
            bn.eps,
            torch.cuda.current_stream(x.device).cuda_stream,
        )
        return out
