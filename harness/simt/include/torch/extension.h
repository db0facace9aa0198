// The part of torch/extension.h that extensions use; torch::nn and torch::autograd come with
// SIMT_ALL_OF_TORCH, at the price of a slow header.
#pragma once
#ifdef SIMT_ALL_OF_TORCH
#include_next <torch/extension.h>
#else
#include <torch/types.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <iostream>
#include <numeric>
#include <optional>
#endif
#include "simt/torch_types.h"
