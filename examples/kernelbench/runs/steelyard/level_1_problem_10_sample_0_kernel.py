"""RMS normalisation of rows with its factor as a second output: a block owns a row.

The row is read twice, the second time from L1 or L2 (8192 fp32 are 32 KB). Traffic: 8 bytes an
element.
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

__device__ float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffff, x, offset);
  return x;
}

__global__ void __launch_bounds__(kThreads)
rms_norm_kernel(const float* __restrict__ x, float* __restrict__ out, float* __restrict__ scales,
                int64_t columns, float eps) {
  __shared__ float smem_sum[kWarps];
  const float* in = x + blockIdx.x * columns;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) sum += in[i] * in[i];
  sum = warp_sum(sum);
  const int lane = threadIdx.x % 32;
  if (lane == 0) smem_sum[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = warp_sum(lane < kWarps ? smem_sum[lane] : 0.0f);
  const float scale = rsqrtf(sum / columns + eps);
  for (int64_t i = threadIdx.x; i < columns; i += kThreads) {
    out[blockIdx.x * columns + i] = in[i] * scale;
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

void forward(uintptr_t x, uintptr_t out, uintptr_t scales, int64_t rows, int64_t columns,
             float eps, uintptr_t stream) {
  if (rows > INT32_MAX) throw std::runtime_error("rms_norm: more than 2^31 rows");
  if (rows == 0) return;
  rms_norm_kernel<<<rows, kThreads, 0, (cudaStream_t)stream>>>((const float*)x, (float*)out,
                                                               (float*)scales, columns, eps);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("rms_norm: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t out, uintptr_t scales, int64_t rows, int64_t columns,
             float eps, uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline("kb_rms_norm", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    def __init__(self, eps=1e-5):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        out, scales = torch.empty_like(x), x.new_empty(len(x))
        tensors = (t.data_ptr() for t in (x, out, scales))
        ext.forward(*tensors, *x.shape, self.eps, torch.cuda.current_stream(x.device).cuda_stream)
        return out, scales
