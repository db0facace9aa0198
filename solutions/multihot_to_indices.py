"""The inverse of indices_to_multihot: a boolean map and dense probabilities to top-k form.

Plan     Forward: a lane owns 32 columns of a row, two 16-byte loads of the map; as many lanes as
         that takes (a power of two up to 32) share a row. A prefix sum over them gives each set
         column its slot; the lists meet in shared memory and go out in order, each slot fetching
         its own probability; where most of a row is wanted it is loaded whole, beside the map.
         Backward: a block owns a run of whole rows, clears their image in shared memory, one thread
         per row drops the row's gradients in, and the image goes out in 16-byte stores.
Traffic  Forward: map, the 32-byte sectors with a chosen entry, lists: 65536 tokens, top 8, 32
         experts, fp32: 16.8 MB, 4.0 us at 4.23 TB/s; 256 experts: 39.8 MB, 9.4 us.
Tried    rows not staged: 4096 x 8 4.3 us instead of 3.2, 65536 x 30 9.2 instead of 7.7; loops
         unrolled by the compiler: 20.6 us instead of 18.9 at 256 experts.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <stdexcept>
#include <string>
#include <tuple>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kThreads = 128;
constexpr int kStagedBytes = 64;  // a row's probabilities, per slot, up to which all are loaded
constexpr int kLaneColumns = 32;
constexpr int64_t kMaxExperts = 1 << 24, kMaxTopk = 1 << 20;
constexpr int kStage = 8;  // 16-byte loads that hold kThreads * kLaneColumns probabilities
constexpr int kMaxShared = 48 * 1024;
constexpr int kBatch = 8;           // entries of a row in flight at once
constexpr int kMaxRows = 64;        // rows of a backward's tile: a thread fills each
constexpr int kMinRows = 16;        // keep a tile's bytes a multiple of 16, as its stores are
constexpr int kGoodEntries = 4096;  // of a tile in shared memory
constexpr int kMaxEntries = 8192;

// A matrix with any strides, in elements.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;
  __device__ T operator()(int64_t row, int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
};

// One bit for each of 32 columns from `column` on that is set; columns from `experts` on are not.
template <bool kVector>
__device__ unsigned set_columns(const Matrix<uint8_t>& map, int64_t row, int column, int experts) {
  unsigned bits = 0;
  if constexpr (kVector) {  // the product moves the low bits of four bytes together
    const uint4* from = reinterpret_cast<const uint4*>(map.data + row * map.row_stride + column);
    const uint4 low = from[0], high = column + 16 < experts ? from[1] : uint4{};
    const unsigned word[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      bits |= ((word[i] & 0x01010101u) * 0x01020408u >> 24 & 15u) << 4 * i;
  } else {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      if (column + i < experts && map(row, column + i)) bits |= 1u << i;
    }
  }
  return bits;
}

// `lanes` lanes share a row; `listed` columns of the lists can be filled, the rest of `topk` is -1.
// `staged`: the rows' probabilities are loaded whole beside the map, not one by one after it.
struct Shape {
  int64_t tokens;
  int experts, topk, listed, lanes;
  bool staged;
};

template <typename T, typename I, bool kVector>
__global__ void __launch_bounds__(kThreads)
multihot_to_indices_kernel(Matrix<uint8_t> map, Matrix<T> dense, Shape shape,
                           I* __restrict__ indices, T* __restrict__ probs) {
  extern __shared__ __align__(16) int smem[];
  const int rows = kThreads / shape.lanes;
  const int64_t first_row = int64_t(blockIdx.x) * rows;
  const bool staged = shape.staged && first_row + rows <= shape.tokens;
  T* smem_dense = reinterpret_cast<T*>(smem);
  int* smem_expert = smem + (shape.staged ? rows * shape.experts * int(sizeof(T)) / 4 : 0);

  const int vectors = staged ? rows * shape.experts * int(sizeof(T)) / 16 : 0;
  const uint4* from = reinterpret_cast<const uint4*>(dense.data + first_row * shape.experts);
  uint4 stage[kStage];
#pragma unroll
  for (int i = 0; i < kStage; ++i) {
    const int at = threadIdx.x + i * kThreads;
    if (at < vectors) stage[i] = from[at];
  }
  const int mine = threadIdx.x / shape.lanes, lane = threadIdx.x % shape.lanes;
  const bool alive = first_row + mine < shape.tokens;
  int* list = smem_expert + mine * shape.listed;

  int used = 0;  // slots filled by earlier columns
  for (int start = 0; start < shape.experts; start += shape.lanes * kLaneColumns) {
    const int column = start + lane * kLaneColumns;
    unsigned bits = alive && column < shape.experts
                        ? set_columns<kVector>(map, first_row + mine, column, shape.experts) : 0;
    int before = __popc(bits);
    for (int step = 1; step < shape.lanes; step *= 2) {
      const int lower = __shfl_up_sync(kFullMask, before, step, shape.lanes);
      if (lane >= step) before += lower;
    }
    const int all = __shfl_sync(kFullMask, before, shape.lanes - 1, shape.lanes);
    int slot = used + before - __popc(bits);
    for (; bits != 0 && slot < shape.listed; bits &= bits - 1)
      list[slot++] = column + __ffs(bits) - 1;
    used += all;
  }
#pragma unroll 1
  for (int slot = used + lane; slot < shape.listed; slot += shape.lanes) list[slot] = -1;
#pragma unroll
  for (int i = 0; i < kStage; ++i) {
    const int at = threadIdx.x + i * kThreads;
    if (at < vectors) reinterpret_cast<uint4*>(smem_dense)[at] = stage[i];
  }
  __syncthreads();

  const int64_t left = shape.tokens - first_row;
  const int entries = (left < rows ? int(left) : rows) * shape.topk;
#pragma unroll 1
  for (int i = threadIdx.x; i < entries; i += kThreads) {
    const int row = i / shape.topk, slot = i - row * shape.topk;
    const int expert = slot < shape.listed ? smem_expert[row * shape.listed + slot] : -1;
    const int64_t out = first_row * shape.topk + i;
    indices[out] = expert;
    if (expert < 0) {
      probs[out] = T{};
    } else if (staged) {
      probs[out] = smem_dense[row * shape.experts + expert];
    } else {
      probs[out] = dense(first_row + row, expert);
    }
  }
}

// What a block of the backward owns: `rows` rows of `columns` columns. Columns are a part of the
// row only where rows == 1, so that a tile is contiguous in the output.
struct Tiling {
  int64_t tokens;
  int experts, rows, columns, parts;
};

// T is an unsigned integer as wide as the probabilities: they are only moved.
template <typename T, typename I>
__global__ void __launch_bounds__(kThreads)
scatter_kernel(Matrix<I> indices, Matrix<T> grad, int topk, Tiling tiling,
               T* __restrict__ grad_dense) {
  extern __shared__ __align__(16) uint8_t smem_bytes[];
  T* smem_image = reinterpret_cast<T*>(smem_bytes);
  const int64_t row = int64_t(blockIdx.x / tiling.parts) * tiling.rows;
  const int column = blockIdx.x % tiling.parts * tiling.columns;
  const int rows = min(int64_t(tiling.rows), tiling.tokens - row);
  const int columns = min(tiling.columns, tiling.experts - column);
  const int entries = rows * columns;
  const bool fills = threadIdx.x < rows;
  constexpr int kWide = 16 / sizeof(T);

  // The loads of the first batch are on their way while the image is cleared.
  I index[kBatch];
  T value[kBatch];
  const auto load = [&](int first) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const bool inside = fills && first + k < topk;
      index[k] = inside ? indices(row + threadIdx.x, first + k) : I(-1);
      value[k] = inside ? grad(row + threadIdx.x, first + k) : T{};
    }
  };
  load(0);
#pragma unroll 1
  for (int i = threadIdx.x * kWide; i < entries; i += kThreads * kWide) {
    *reinterpret_cast<uint4*>(smem_image + i) = uint4{};
  }
  __syncthreads();
#pragma unroll 1
  for (int first = 0; fills && first < topk; first += kBatch) {
    if (first > 0) load(first);
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t at = int64_t(index[k]) - column;
      if (index[k] < 0 || at < 0 || at >= columns) continue;
      smem_image[threadIdx.x * columns + at] = value[k];
    }
  }
  __syncthreads();

  const int64_t out = row * tiling.experts + column;
  const bool aligned = out % kWide == 0;  // only a part of a row starts anywhere
#pragma unroll 1
  for (int i = threadIdx.x * kWide; i < entries; i += kThreads * kWide) {
    if (aligned && i + kWide <= entries) {
      *reinterpret_cast<uint4*>(grad_dense + out + i) =
          *reinterpret_cast<const uint4*>(smem_image + i);
    } else {
      for (int j = i; j < i + kWide && j < entries; ++j) grad_dense[out + j] = smem_image[j];
    }
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("multihot_to_indices: " + what);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(error));
}

// Makes a tensor's device the current one and knows its current stream.
struct OnDevice {
  int before, device;
  cudaStream_t stream;
  explicit OnDevice(const Tensor& tensor) : device(tensor.get_device()) {
    check(cudaGetDevice(&before), "cudaGetDevice");
    if (device != before) check(cudaSetDevice(device), "cudaSetDevice");
    void* current;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &current));
    stream = static_cast<cudaStream_t>(current);
  }
  ~OnDevice() {
    if (device != before) cudaSetDevice(before);
  }
};

Tensor empty(const Tensor& like, int32_t dtype, int64_t rows, int64_t columns) {
  const int64_t sizes[] = {rows, columns}, strides[] = {columns, 1};
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &type));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(2, sizes, strides, dtype, type, like.get_device(), &handle));
  return Tensor(handle);
}

template <typename T>
Matrix<T> matrix(const Tensor& x) {
  return {static_cast<const T*>(x.data_ptr()), x.stride(0), x.stride(1)};
}

// Calls f with an unsigned integer as wide as the probabilities and one of the indices' type.
template <typename F>
void with_types(const Tensor& probs, ScalarType index_type, F f) {
  const ScalarType type = probs.scalar_type();
  const bool half = type == ScalarType::Half || type == ScalarType::BFloat16;
  if (!half && type != ScalarType::Float) fail("probabilities must be fp32, fp16 or bf16");
  if (index_type != ScalarType::Int && index_type != ScalarType::Long)
    fail("indices must be int32 or int64");
  if (index_type == ScalarType::Long) {
    if (half) return f(uint16_t{}, int64_t{});
    return f(uint32_t{}, int64_t{});
  }
  if (half) return f(uint16_t{}, int32_t{});
  f(uint32_t{}, int32_t{});
}

std::tuple<Tensor, Tensor> multihot_to_indices(const Tensor& map, const Tensor& dense, int64_t topk,
                                               bool wide) {
  if (!map.is_cuda() || !dense.is_cuda() || map.get_device() != dense.get_device())
    fail("map and dense must be on one GPU");
  if (map.scalar_type() != ScalarType::Bool || map.dim() != 2 || dense.dim() != 2 ||
      map.size(0) != dense.size(0) || map.size(1) != dense.size(1))
    fail("map (bool) and dense must both be (tokens, experts)");
  if (topk < 1 || topk > kMaxTopk || map.size(1) > kMaxExperts)
    fail("topk must be 1 to 2^20 and experts at most 2^24, not " + std::to_string(topk) + " and " +
         std::to_string(map.size(1)));
  const OnDevice on(map);
  Shape shape{map.size(0), int(map.size(1)), int(topk), 0, 1, false};
  shape.listed = shape.topk < shape.experts ? shape.topk : shape.experts;
  while (shape.lanes < 32 && shape.lanes * kLaneColumns < shape.experts) shape.lanes *= 2;
  const int rows = kThreads / shape.lanes;
  const int64_t row_bytes = shape.experts * dense.element_size();
  shape.staged = shape.experts <= 32 * kLaneColumns && row_bytes <= kStagedBytes * topk &&
                 dense.is_contiguous() && rows * row_bytes % 16 == 0 &&
                 reinterpret_cast<uint64_t>(dense.data_ptr()) % 16 == 0;
  const size_t shared =
      sizeof(int) * rows * shape.listed + (shape.staged ? size_t(rows * row_bytes) : 0);
  if (shared > kMaxShared)
    fail("lists of " + std::to_string(shape.listed) + " experts are too long (at most 3072)");
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(dense.get(), &dtype));
  const int32_t index_dtype = wide ? aoti_torch_dtype_int64() : aoti_torch_dtype_int32();
  Tensor indices = empty(map, index_dtype, shape.tokens, topk);
  Tensor probs = empty(map, dtype, shape.tokens, topk);
  const int64_t blocks = (shape.tokens + rows - 1) / rows;
  if (blocks > INT32_MAX) fail(std::to_string(shape.tokens) + " tokens are too many");
  const uint64_t addresses = reinterpret_cast<uint64_t>(map.data_ptr()) | shape.experts |
                             (shape.tokens > 1 ? map.stride(0) : 0);
  const bool vector = addresses % 16 == 0 && map.stride(1) == 1;
  with_types(dense, wide ? ScalarType::Long : ScalarType::Int, [&](auto t, auto i) {
    using T = decltype(t);
    using I = decltype(i);
    if (blocks == 0) return;
    auto* kernel = vector ? multihot_to_indices_kernel<T, I, true>
                          : multihot_to_indices_kernel<T, I, false>;
    kernel<<<blocks, kThreads, shared, on.stream>>>(
        matrix<uint8_t>(map), matrix<T>(dense), shape, static_cast<I*>(indices.data_ptr()),
        static_cast<T*>(probs.data_ptr()));
  });
  check(cudaGetLastError(), "launch of multihot_to_indices_kernel");
  return {indices, probs};
}

// Whole rows where they fit.
Tiling tiling_of(int64_t tokens, int experts) {
  int rows = kMaxRows;
  while (rows > kMinRows && rows * experts > kGoodEntries) rows /= 2;
  if (rows * experts <= kMaxEntries) return {tokens, experts, rows, experts, 1};
  const int parts = (experts + kMaxEntries - 1) / kMaxEntries;
  return {tokens, experts, 1, parts > 1 ? kMaxEntries : experts, parts};
}

Tensor multihot_to_indices_backward(const Tensor& grad, const Tensor& indices, int64_t experts) {
  const OnDevice on(indices);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(grad.get(), &dtype));
  const int64_t tokens = indices.size(0);
  Tensor grad_dense = empty(indices, dtype, tokens, experts);
  const Tiling tiling = tiling_of(tokens, experts);
  const int64_t blocks = (tokens + tiling.rows - 1) / tiling.rows * tiling.parts;
  if (blocks > INT32_MAX) fail(std::to_string(tokens) + " tokens are too many");
  with_types(grad, indices.scalar_type(), [&](auto t, auto i) {
    using T = decltype(t);
    using I = decltype(i);
    if (blocks == 0 || experts == 0) return;
    const size_t shared = (tiling.rows * tiling.columns * sizeof(T) + 15) / 16 * 16;
    scatter_kernel<T, I><<<blocks, kThreads, shared, on.stream>>>(
        matrix<I>(indices), matrix<T>(grad), indices.size(1), tiling,
        static_cast<T*>(grad_dense.data_ptr()));
  });
  check(cudaGetLastError(), "launch of scatter_kernel");
  return grad_dense;
}

STABLE_TORCH_LIBRARY(steelyard_multihot_to_indices, m) {
  m.def("forward(Tensor map, Tensor dense, int topk, bool wide) -> (Tensor, Tensor)");
  m.def("backward(Tensor grad, Tensor indices, int experts) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_multihot_to_indices, CompositeExplicitAutograd, m) {
  m.impl("forward", TORCH_BOX(&multihot_to_indices));
  m.impl("backward", TORCH_BOX(&multihot_to_indices_backward));
}
"""

load_inline(
    name="steelyard_multihot_to_indices",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
multihot_to_indices = torch.ops.steelyard_multihot_to_indices.forward.default
multihot_to_indices_backward = torch.ops.steelyard_multihot_to_indices.backward.default


class MultihotToIndices(torch.autograd.Function):
    @staticmethod
    def forward(ctx, chosen, dense, topk, wide):
        indices, probs = multihot_to_indices(chosen, dense, topk, wide)
        ctx.experts = dense.shape[1]
        ctx.save_for_backward(indices)
        ctx.mark_non_differentiable(indices)
        ctx.set_materialize_grads(False)  # no zeros for the indices' gradient, which is not read
        return indices, probs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _, grad):
        if grad is None:
            return None, None, None, None
        grad = multihot_to_indices_backward(grad, *ctx.saved_tensors, ctx.experts)
        return None, grad, None, None


class ModelNew(nn.Module):
    def __init__(self, topk=8, index="int64"):
        super().__init__()
        self.topk = topk
        self.wide = index == "int64"

    def forward(self, chosen, dense):
        if dense.requires_grad and torch.is_grad_enabled():
            return MultihotToIndices.apply(chosen, dense, self.topk, self.wide)
        return multihot_to_indices(chosen, dense, self.topk, self.wide)
