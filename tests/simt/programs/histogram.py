"""Histogram of bytes: a shared copy per block by atomicAdd, then added up. Full headers."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>

#define CUDA_KERNEL_LOOP(i, n) \
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

__global__ void histogram_kernel(const unsigned char* x, int* bins, int n) {
  extern __shared__ int local[];
  for (int b = threadIdx.x; b < 256; b += blockDim.x) local[b] = 0;
  __syncthreads();
  CUDA_KERNEL_LOOP(i, n) { atomicAdd(&local[x[i]], 1); }
  __syncthreads();
  for (int b = threadIdx.x; b < 256; b += blockDim.x)
    if (local[b]) atomicAdd(bins + b, local[b]);
}

torch::Tensor histogram(torch::Tensor x) {
  CHECK_INPUT(x);
  auto bins = torch::zeros({256}, x.options().dtype(torch::kInt32));
  const int n = x.numel();
  if (n == 0) return bins;
  const int blocks = std::min((n + 255) / 256, 32);
  histogram_kernel<<<blocks, 256, 256 * sizeof(int)>>>(x.data_ptr<unsigned char>(),
                                                       bins.data_ptr<int>(), n);
  C10_CUDA_CHECK(cudaGetLastError());
  return bins;
}
"""

module = load_inline(
    name="program_histogram",
    cpp_sources="torch::Tensor histogram(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["histogram"],
    verbose=False,
)


def run(x: torch.Tensor) -> torch.Tensor:
    """(n,) uint8 -> (256,) int32."""
    return module.histogram(x)
