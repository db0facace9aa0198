"""Convolution, direct: a block owns a 16 x 16 patch of the output in 8 output channels.

For each input channel it brings the patch with its rim, and the 8 filters, into shared memory; a
thread keeps its pixel's 8 sums in registers, so one load of a pixel serves 8 multiply-adds.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

constexpr int kPatch = 16;
constexpr int kFilters = 8;  // output channels of a block
constexpr int kMaxKernel = 7;
constexpr int kMaxRim = kPatch + kMaxKernel - 1;

struct Sizes {
  int batch, in_channels, out_channels, height, width, kernel, padding, out_height, out_width;
};

__global__ void __launch_bounds__(kPatch* kPatch)
conv2d_kernel(const float* __restrict__ x, const float* __restrict__ weight,
              const float* __restrict__ bias, float* __restrict__ out, Sizes s) {
  __shared__ float smem_x[kMaxRim * kMaxRim];
  __shared__ float smem_weight[kFilters * kMaxKernel * kMaxKernel];
  const int groups = (s.out_channels + kFilters - 1) / kFilters;
  const int image = blockIdx.z / groups, filter = blockIdx.z % groups * kFilters;
  const int top = blockIdx.y * kPatch, left = blockIdx.x * kPatch;
  const int thread = threadIdx.y * kPatch + threadIdx.x;
  const int rim = kPatch + s.kernel - 1, area = s.kernel * s.kernel;
  float sum[kFilters] = {};
  for (int channel = 0; channel < s.in_channels; ++channel) {
    const float* plane = x + (int64_t(image) * s.in_channels + channel) * s.height * s.width;
    for (int i = thread; i < rim * rim; i += kPatch * kPatch) {
      const int row = top + i / rim - s.padding, column = left + i % rim - s.padding;
      const bool inside = row >= 0 && row < s.height && column >= 0 && column < s.width;
      smem_x[i] = inside ? plane[int64_t(row) * s.width + column] : 0.0f;
    }
    for (int i = thread; i < kFilters * area; i += kPatch * kPatch) {
      const int f = filter + i / area;
      smem_weight[i] = f < s.out_channels
                           ? weight[(int64_t(f) * s.in_channels + channel) * area + i % area]
                           : 0.0f;
    }
    __syncthreads();
    for (int tap = 0; tap < area; ++tap) {
      const int row = threadIdx.y + tap / s.kernel, column = threadIdx.x + tap % s.kernel;
      const float pixel = smem_x[row * rim + column];
      for (int f = 0; f < kFilters; ++f) sum[f] += pixel * smem_weight[f * area + tap];
    }
    __syncthreads();
  }
  const int row = top + threadIdx.y, column = left + threadIdx.x;
  if (row >= s.out_height || column >= s.out_width) return;
  for (int f = 0; f < kFilters && filter + f < s.out_channels; ++f) {
    const int64_t plane = int64_t(image) * s.out_channels + filter + f;
    out[(plane * s.out_height + row) * s.out_width + column] = sum[f] + bias[filter + f];
  }
}

void forward(uintptr_t x, uintptr_t weight, uintptr_t bias, uintptr_t out, int batch,
             int in_channels, int out_channels, int height, int width, int kernel, int padding,
             uintptr_t stream) {
  if (kernel > kMaxKernel) throw std::runtime_error("conv2d: kernels up to 7 x 7");
  const Sizes s{batch,  in_channels, out_channels,
                height, width,       kernel,
                padding, height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1};
  const int groups = (out_channels + kFilters - 1) / kFilters;
  if (int64_t(batch) * groups > 65535) throw std::runtime_error("conv2d: batch is too large");
  if (batch == 0) return;
  const dim3 grid((s.out_width + kPatch - 1) / kPatch, (s.out_height + kPatch - 1) / kPatch,
                  batch * groups);
  conv2d_kernel<<<grid, dim3(kPatch, kPatch), 0, (cudaStream_t)stream>>>(
      (const float*)x, (const float*)weight, (const float*)bias, (float*)out, s);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("conv2d: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t weight, uintptr_t bias, uintptr_t out, int batch,
             int in_channels, int out_channels, int height, int width, int kernel, int padding,
             uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline("kb_conv2d", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    """Holds its parameters in an nn.Conv2d, made as the reference makes it: equal seeds, equal
    weights."""

    def __init__(self, in_channels, out_channels, kernel_size, padding=0):
        super().__init__()
        self.conv2d = nn.Conv2d(in_channels, out_channels, kernel_size, padding=padding)
        self.padding = padding

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.conv2d.weight, self.conv2d.bias
        batch, channels, height, width = x.shape
        filters, _, kernel, _ = weight.shape
        grown = 2 * self.padding - kernel + 1
        out = x.new_empty(batch, filters, height + grown, width + grown)
        tensors = (t.data_ptr() for t in (x, weight, bias, out))
        stream = torch.cuda.current_stream(x.device).cuda_stream
        ext.forward(*tensors, batch, channels, filters, height, width, kernel, self.padding, stream)
        return out
