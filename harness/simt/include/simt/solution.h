// Comes before every translated source; which parts depends on the headers it includes.
#pragma once
#include <cuda_runtime.h>
#include "simt/bfloat.h"

#if defined(SIMT_WITH_STABLE)
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/csrc/stable/accelerator.h>
inline AOTITorchError simt_current_cuda_stream(int32_t, void** stream) {
  *stream = nullptr;
  return AOTI_TORCH_SUCCESS;
}
#endif
#if defined(SIMT_WITH_TORCH)
#include <torch/extension.h>
#include "simt/torch_cuda.h"
#define SIMT_BIND(f) torch::wrap_pybind_function(f)
#elif defined(SIMT_WITH_PYBIND)
#include <pybind11/pybind11.h>
#define SIMT_BIND(f) &f
#endif
