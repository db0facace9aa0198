"""Mean cross entropy, two kernels: a block per row, then one block over the rows' losses.

loss[r] = log(sum(exp(logits[r] - largest))) + largest - logits[r, target[r]]; the row is read
twice, the second time most likely from L1 or L2. The sum over rows has one fixed order, so the
result is the same each time.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__device__ float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffff, x, offset);
  return x;
}

__device__ float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, offset));
  }
  return x;
}

// All threads get the sum; smem_warp may be used again after the next barrier.
__device__ float block_sum(float x, float* smem_warp) {
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) smem_warp[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < kWarps ? smem_warp[threadIdx.x % 32] : 0.0f);
}

__device__ float block_max(float x, float* smem_warp) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) smem_warp[threadIdx.x / 32] = x;
  __syncthreads();
  return warp_max(threadIdx.x % 32 < kWarps ? smem_warp[threadIdx.x % 32] : -INFINITY);
}

// A class number outside [0, classes) gives NaN, which no comparison passes.
__global__ void __launch_bounds__(kThreads)
row_losses_kernel(const float* __restrict__ logits, const int64_t* __restrict__ targets,
                  float* __restrict__ losses, int64_t classes) {
  __shared__ float smem_max[kWarps], smem_sum[kWarps];
  const float* row = logits + blockIdx.x * classes;
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < classes; i += kThreads) largest = fmaxf(largest, row[i]);
  largest = block_max(largest, smem_max);
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < classes; i += kThreads) sum += expf(row[i] - largest);
  sum = block_sum(sum, smem_sum);
  if (threadIdx.x != 0) return;
  const int64_t target = targets[blockIdx.x];
  const bool known = target >= 0 && target < classes;
  losses[blockIdx.x] = known ? logf(sum) + (largest - row[target]) : NAN;
}

__global__ void __launch_bounds__(kThreads)
mean_kernel(const float* __restrict__ losses, float* __restrict__ out, int64_t rows) {
  __shared__ float smem_sum[kWarps];
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < rows; i += kThreads) sum += losses[i];
  sum = block_sum(sum, smem_sum);
  if (threadIdx.x == 0) *out = sum / rows;
}

void forward(uintptr_t logits, uintptr_t targets, uintptr_t losses, uintptr_t out, int64_t rows,
             int64_t classes, uintptr_t stream) {
  if (rows > INT32_MAX) throw std::runtime_error("cross_entropy: more than 2^31 rows");
  if (rows > 0) {
    row_losses_kernel<<<rows, kThreads, 0, (cudaStream_t)stream>>>(
        (const float*)logits, (const int64_t*)targets, (float*)losses, classes);
    if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("row_losses: launch failed");
  }
  mean_kernel<<<1, kThreads, 0, (cudaStream_t)stream>>>((const float*)losses, (float*)out, rows);
  if (cudaGetLastError() != cudaSuccess) throw std::runtime_error("mean: launch failed");
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

#include <cstdint>

void forward(uintptr_t logits, uintptr_t targets, uintptr_t losses, uintptr_t out, int64_t rows,
             int64_t classes, uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

ext = load_inline(
    "kb_cross_entropy", CPP_SOURCE, CUDA_SOURCE, with_cuda=True, no_implicit_headers=True
)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        logits = logits.contiguous()
        targets = targets.long().contiguous()  # KernelBench hands class numbers over as floats
        losses, out = logits.new_empty(len(logits)), logits.new_empty(())
        tensors = (t.data_ptr() for t in (logits, targets, losses, out))
        ext.forward(*tensors, *logits.shape, torch.cuda.current_stream(logits.device).cuda_stream)
        return out
