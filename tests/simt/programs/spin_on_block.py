"""Blocks hand a running sum on: block b waits for block b - 1's flag. Lean.

Forward order makes progress whenever lower blocks start first (as GPUs do, though nothing promises
it). With `backward` block b waits for block b + 1: more blocks than fit at once never finish, on a
GPU a hang; here it must end with a message that names the line.
"""

import torch
from torch.utils.cpp_extension import load_inline

CPP = r"""
#include <cstdint>
#include <pybind11/pybind11.h>
void chain(std::uintptr_t sums, std::uintptr_t flags, int blocks, bool backward);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("chain", &chain); }
"""
CUDA = r"""
#include <cstdint>
#include <stdexcept>
#include <cuda_runtime.h>

__global__ void chain_kernel(int* sums, int* flags, bool backward) {
  const int b = backward ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  if (threadIdx.x != 0) return;
  int before = 0;
  if (b > 0) {
    while (atomicAdd(&flags[b - 1], 0) == 0) {  // SPIN
    }
    __threadfence();
    before = sums[b - 1];
  }
  sums[b] = before + b;
  __threadfence();
  atomicExch(&flags[b], 1);
}

void chain(std::uintptr_t sums, std::uintptr_t flags, int blocks, bool backward) {
  chain_kernel<<<blocks, 32>>>(reinterpret_cast<int*>(sums), reinterpret_cast<int*>(flags),
                               backward);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}
"""

module = load_inline(
    name="program_spin_on_block",
    cpp_sources=CPP,
    cuda_sources=CUDA,
    functions=None,
    no_implicit_headers=True,
)


def run(blocks: int, backward: bool) -> torch.Tensor:
    """-> (blocks,) int32 running sums of 0, 1, 2, ..."""
    sums = torch.empty(blocks, dtype=torch.int32, device="cuda")
    flags = torch.zeros(blocks, dtype=torch.int32, device="cuda")
    module.chain(sums.data_ptr(), flags.data_ptr(), blocks, backward)
    return sums
