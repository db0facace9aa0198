"""Verdict: needs a GPU. Matrix-unit instructions have no meaning on the CPU: never a pass."""

import torch
from torch.utils.cpp_extension import load_inline

REFERENCE = "gelu"
SOURCE = r"""
#include <cuda_runtime.h>
#include <pybind11/pybind11.h>

__global__ void tensor_core_kernel(float* out) {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
  out[threadIdx.x] = 0.0f;
}

void run(size_t out) { tensor_core_kernel<<<1, 32>>>((float*)out); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""
run = load_inline("bad_needs_gpu", "", SOURCE, no_implicit_headers=True).run


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        run(out.data_ptr())
        return out
