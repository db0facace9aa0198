"""SiLU: each thread reads, computes and writes four neighbouring elements.

Traffic: 8 bytes an element, and an exponential that stays far below the memory's time.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

__device__ float silu(float x) { return x / (1.0f + expf(-x)); }

// Thread i owns elements [4i, 4i + 4); one 16-byte access where all four exist and are aligned.
__global__ void silu_kernel(const float* __restrict__ x, float* __restrict__ out, int64_t total,
                            bool aligned) {
  const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (aligned && first + kPerThread <= total) {
    const float4 in = *reinterpret_cast<const float4*>(x + first);
    *reinterpret_cast<float4*>(out + first) =
        make_float4(silu(in.x), silu(in.y), silu(in.z), silu(in.w));
    return;
  }
  for (int64_t i = first; i < first + kPerThread && i < total; ++i) out[i] = silu(x[i]);
}

void forward(uintptr_t x, uintptr_t out, int64_t total, uintptr_t stream) {
  if (total == 0) return;
  const int64_t per_block = kThreads * kPerThread;
  silu_kernel<<<(total + per_block - 1) / per_block, kThreads, 0, (cudaStream_t)stream>>>(
      (const float*)x, (float*)out, total, (x | out) % 16 == 0);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("silu: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t x, uintptr_t out, int64_t total, uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline("kb_silu", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        stream = torch.cuda.current_stream(x.device).cuda_stream
        ext.forward(x.data_ptr(), out.data_ptr(), x.numel(), stream)
        return out
