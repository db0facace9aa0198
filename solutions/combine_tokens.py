"""Weighted sum of each token's expert rows: the inverse of permute_tokens, with probabilities.

Plan     Forward: a thread owns 16 bytes of a token's result and adds up its rows' in fp32, in the
         order of k, eight loads in flight; dropped entries are not read. Backward: a block owns a
         token, keeps 16 KB of its gradient in registers and goes over the token's rows: reads one,
         writes its gradient, and reduces their product to the probability's. Blocks of the same
         launch clear the gradients of padding rows. No atomics: the same result each time.
Traffic  Forward (tokens + rows) x hidden x bytes: 4096 tokens, top 8, 7168, bf16: 529 MB, 125 us at
         4.23 TB/s; backward (tokens + 2 rows): 998 MB, 236 us. Not measured yet.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr unsigned kFullMask = 0xffffffff;
constexpr int kSumThreads = 128;
constexpr int kBatch = 8;       // rows in flight
constexpr int kThreads = 256;   // of a block that owns a token in the backward
constexpr int kVectors = 4;
constexpr int kClearRows = 8;   // rows a warp looks at for padding
constexpr int kMaxTopk = 1024;  // a dot product of each entry and warp in 32 KB of shared memory

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float x, float& to) { to = x; }
__device__ void from_float(float x, __half& to) { to = __float2half_rn(x); }
__device__ void from_float(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

// A matrix with any strides, in elements.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;
  __device__ T operator()(int64_t row, int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
};

// N elements of a row, loaded and stored at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Elements {
  T at[N];
};

// Probabilities of any type and strides. `data` null: all are 1.
struct Weights {
  const void* data;
  int64_t row_stride, column_stride;
  ScalarType type;
  __device__ float operator()(int64_t row, int64_t column) const {
    const int64_t at = row * row_stride + column * column_stride;
    if (data == nullptr) return 1.f;
    if (type == ScalarType::Float) return static_cast<const float*>(data)[at];
    if (type == ScalarType::Half) return to_float(static_cast<const __half*>(data)[at]);
    return to_float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
};

// Where each token's rows are: row_of[t, k] within [0, rows), all others are dropped.
struct Map {
  Matrix<int> row_of;
  int64_t rows;
  int topk;
  __device__ int operator()(int64_t token, int k) const {
    const int row = k < topk ? row_of(token, k) : -1;
    return row < rows ? row : -1;
  }
};

// out[t] = sum of weight x row over the rows of token t, in the order of k. One vector a thread,
// kBatch rows in flight; a block has kSumThreads vectors of one token, `pieces` blocks a token.
template <typename T, int N>
__global__ void __launch_bounds__(kSumThreads)
sum_rows_kernel(const T* __restrict__ in, int64_t in_stride, Weights weights, Map map, int width,
                unsigned pieces, T* __restrict__ out) {
  using V = Elements<T, N>;
  // Loaded as one word: the compiler keeps 16-bit members in registers of their own, and spills.
  using Word = std::conditional_t<sizeof(V) == 16, uint4, V>;
  const int64_t token = blockIdx.x / pieces;
  const int column = int(blockIdx.x % pieces) * kSumThreads + int(threadIdx.x);
  const int lane = threadIdx.x % 32;
  float sum[N] = {};
#pragma unroll 1
  for (int first = 0; first < map.topk; first += 32) {
    const int my_row = map(token, first + lane);
    const float my_weight = my_row >= 0 ? weights(token, first + lane) : 0.f;
#pragma unroll 1
    for (int k = 0; k < 32 && first + k < map.topk; k += kBatch) {
      Word value[kBatch];
      int row[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        row[i] = __shfl_sync(kFullMask, my_row, k + i);
        const T* at = in + row[i] * in_stride + int64_t(column) * N;
        if (row[i] >= 0 && column < width) value[i] = *reinterpret_cast<const Word*>(at);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const float weight = __shfl_sync(kFullMask, my_weight, k + i);
        if (row[i] < 0 || column >= width) continue;
        V read;
        memcpy(&read, &value[i], sizeof(V));
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += weight * to_float(read.at[j]);
      }
    }
  }
  if (column >= width) return;
  V result;
#pragma unroll
  for (int j = 0; j < N; ++j) from_float(sum[j], result.at[j]);
  *reinterpret_cast<V*>(out + (token * width + column) * N) = result;
}

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kFullMask, x, step);
  return x;
}

// Gradients of one call: of the rows (rows, width) and of the probabilities (tokens, k).
template <typename V>
struct Gradients {
  V* rows;
  void* probs;
  ScalarType probs_type;
  __device__ void set_prob(int64_t at, float x) const {
    if (probs_type == ScalarType::Float) return from_float(x, static_cast<float*>(probs)[at]);
    if (probs_type == ScalarType::Half) return from_float(x, static_cast<__half*>(probs)[at]);
    from_float(x, static_cast<__nv_bfloat16*>(probs)[at]);
  }
};

// Blocks before `clearing` clear the gradients of padding rows; the others each own a token.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
combine_backward_kernel(const T* __restrict__ grad, int64_t grad_stride, const T* __restrict__ y,
                        int64_t y_stride, Weights weights, Map map,
                        const int* __restrict__ entry_of, int width, unsigned clearing,
                        Gradients<Elements<T, N>> out) {
  using V = Elements<T, N>;
  using Word = std::conditional_t<sizeof(V) == 16, uint4, V>;  // as in sum_rows_kernel
  extern __shared__ float smem_dot[];  // (warps, k)
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (blockIdx.x < clearing) {
    const int64_t first = (int64_t(blockIdx.x) * (kThreads / 32) + warp) * kClearRows;
    const bool empty =
        lane < kClearRows && first + lane < map.rows && entry_of[first + lane] < 0;
    unsigned left = __ballot_sync(kFullMask, empty);
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      V* row = out.rows + (first + __ffs(left) - 1) * width;
#pragma unroll 4
      for (int i = lane; i < width; i += 32) row[i] = V{};
    }
    return;
  }
  const int64_t token = blockIdx.x - clearing;
#pragma unroll 1
  for (int k = lane; k < map.topk; k += 32) smem_dot[warp * map.topk + k] = 0;
  __syncwarp();
#pragma unroll 1
  for (int start = 0; start < width; start += kThreads * kVectors) {
    Word mine[kVectors] = {};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int column = start + i * kThreads + int(threadIdx.x);
      const T* at = grad + token * grad_stride + int64_t(column) * N;
      if (column < width) mine[i] = *reinterpret_cast<const Word*>(at);
    }
#pragma unroll 1
    for (int k = 0; k < map.topk; ++k) {
      const int64_t row = map(token, k);
      if (row < 0) continue;
      const float weight = weights(token, k);
      Word theirs[kVectors] = {};
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int column = start + i * kThreads + int(threadIdx.x);
        const T* at = y + row * y_stride + int64_t(column) * N;
        if (column < width) theirs[i] = *reinterpret_cast<const Word*>(at);
      }
      float dot = 0;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int column = start + i * kThreads + int(threadIdx.x);
        if (column >= width) continue;
        V g, read, scaled;
        memcpy(&g, &mine[i], sizeof(V));
        memcpy(&read, &theirs[i], sizeof(V));
#pragma unroll
        for (int j = 0; j < N; ++j) {
          dot += to_float(g.at[j]) * to_float(read.at[j]);
          from_float(weight * to_float(g.at[j]), scaled.at[j]);
        }
        out.rows[row * width + column] = scaled;
      }
      dot = warp_sum(dot);
      if (lane == 0) smem_dot[warp * map.topk + k] += dot;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int k = threadIdx.x; k < map.topk; k += kThreads) {
    float dot = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) dot += smem_dot[w * map.topk + k];
    out.set_prob(token * map.topk + k, dot);
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("combine_tokens: " + what);
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

void check_hidden(const Tensor& x) {
  if (!x.is_cuda() || x.dim() != 2 || (x.size(0) > 0 && x.size(1) > 1 && x.stride(1) != 1))
    fail("hidden states and gradients must be (rows, hidden) on a GPU, each row contiguous");
}

void check_probs(const Tensor& probs, const Tensor& row_of) {
  const ScalarType type = probs.scalar_type();
  if (type != ScalarType::Float && type != ScalarType::Half && type != ScalarType::BFloat16)
    fail("probs must be fp32, fp16 or bf16");
  if (!probs.is_cuda() || probs.dim() != 2 || row_of.dim() != 2 ||
      probs.size(0) != row_of.size(0) || probs.size(1) != row_of.size(1))
    fail("probs and row_of must both be (tokens, k) on a GPU");
}

Map map_of(const Tensor& row_of, int64_t rows) {
  if (!row_of.is_cuda() || row_of.dim() != 2 || row_of.scalar_type() != ScalarType::Int)
    fail("row_of must be int32, (tokens, k), on a GPU");
  if (row_of.numel() > INT32_MAX || rows > INT32_MAX) fail("tokens x k and rows must be < 2^31");
  return {matrix<int>(row_of), rows, int(row_of.size(1))};
}

const int* entries(const Tensor& entry_of) {
  if (!entry_of.is_cuda() || entry_of.dim() != 1 || entry_of.scalar_type() != ScalarType::Int ||
      !entry_of.is_contiguous())
    fail("entry_of must be int32, (rows,), contiguous, on a GPU");
  return static_cast<const int*>(entry_of.data_ptr());
}

int32_t dtype_of(const Tensor& x) {
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  return dtype;
}

// Bytes from one row to the next.
int64_t row_pitch(const Tensor& x) {
  return (x.size(0) > 1 ? x.stride(0) : x.size(1)) * x.element_size();
}

unsigned blocks_for(uint64_t items, unsigned per_block) {
  const uint64_t blocks = (items + per_block - 1) / per_block;
  if (blocks > INT32_MAX) fail(std::to_string(items) + " vectors need too many blocks");
  return blocks;
}

// Calls f with a value of x's type and the number of its elements that every address allows: 16
// bytes, or one element.
template <typename F>
void with_elements(const Tensor& x, uint64_t addresses, F f) {
  const auto call = [&](auto t) {
    constexpr int kWide = 16 / sizeof(t);
    if (addresses % 16 == 0) return f(t, std::integral_constant<int, kWide>{});
    f(t, std::integral_constant<int, 1>{});
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: return call(float{});
    case ScalarType::Half: return call(__half{});
    case ScalarType::BFloat16: return call(__nv_bfloat16{});
    default: fail("hidden states must be fp32, fp16 or bf16");
  }
}

// (tokens, hidden): each token's weighted rows of `in` added up.
Tensor sum_rows(const Tensor& in, const Weights& weights, const Tensor& row_of,
                cudaStream_t stream) {
  const Map map = map_of(row_of, in.size(0));
  const int64_t tokens = row_of.size(0), row_bytes = in.size(1) * in.element_size();
  Tensor out = empty(in, dtype_of(in), tokens, in.size(1));
  if (tokens * row_bytes == 0) return out;
  const int64_t pitch = row_pitch(in);
  with_elements(in, reinterpret_cast<uint64_t>(in.data_ptr()) | pitch | row_bytes,
                [&](auto t, auto n) {
    using T = decltype(t);
    constexpr int N = decltype(n)::value;
    const int64_t width = in.size(1) / N;
    const unsigned pieces = blocks_for(width, kSumThreads);
    sum_rows_kernel<T, N><<<blocks_for(tokens * pieces, 1), kSumThreads, 0, stream>>>(
        static_cast<const T*>(in.data_ptr()), pitch / int64_t(sizeof(T)), weights, map, width,
        pieces, static_cast<T*>(out.data_ptr()));
  });
  check(cudaGetLastError(), "launch of sum_rows_kernel");
  return out;
}

Weights weights_of(const Tensor& probs) {
  return {probs.data_ptr(), probs.stride(0), probs.stride(1), probs.scalar_type()};
}

Tensor combine_tokens(const Tensor& y, const Tensor& probs, const Tensor& row_of) {
  check_hidden(y);
  check_probs(probs, row_of);
  const OnDevice on(y);
  return sum_rows(y, weights_of(probs), row_of, on.stream);
}

std::tuple<Tensor, Tensor> combine_tokens_backward(const Tensor& grad, const Tensor& y,
                                                   const Tensor& probs, const Tensor& row_of,
                                                   const Tensor& entry_of) {
  check_hidden(grad);
  const OnDevice on(grad);
  const int* entry = entries(entry_of);
  const int64_t rows = y.size(0), tokens = row_of.size(0), row_bytes = y.size(1) * y.element_size();
  const Map map = map_of(row_of, rows);
  if (entry_of.size(0) != rows) fail("entry_of must have as many rows as y");
  if (map.topk > kMaxTopk) fail("k must be at most 1024 in the backward");
  Tensor grad_y = empty(y, dtype_of(y), rows, y.size(1));
  Tensor grad_probs = empty(y, dtype_of(probs), tokens, map.topk);
  const int64_t pitch = row_pitch(y), grad_pitch = row_pitch(grad);
  const uint64_t addresses = reinterpret_cast<uint64_t>(y.data_ptr()) |
                             reinterpret_cast<uint64_t>(grad.data_ptr()) | pitch | grad_pitch |
                             row_bytes;
  const unsigned clearing = blocks_for(rows, kClearRows * kThreads / 32);
  const unsigned blocks = blocks_for(tokens + clearing, 1);
  if (blocks == 0) return {grad_y, grad_probs};
  with_elements(y, addresses, [&](auto t, auto n) {
    using T = decltype(t);
    constexpr int N = decltype(n)::value;
    Gradients<Elements<T, N>> out{static_cast<Elements<T, N>*>(grad_y.data_ptr()),
                                grad_probs.data_ptr(), probs.scalar_type()};
    const size_t shared = sizeof(float) * kThreads / 32 * map.topk;
    combine_backward_kernel<T, N><<<blocks, kThreads, shared, on.stream>>>(
        static_cast<const T*>(grad.data_ptr()), grad_pitch / int64_t(sizeof(T)),
        static_cast<const T*>(y.data_ptr()), pitch / int64_t(sizeof(T)), weights_of(probs), map,
        entry, int(y.size(1) / N), clearing, out);
  });
  check(cudaGetLastError(), "launch of combine_backward_kernel");
  return {grad_y, grad_probs};
}

STABLE_TORCH_LIBRARY(steelyard_combine_tokens, m) {
  m.def("forward(Tensor y, Tensor probs, Tensor row_of) -> Tensor");
  m.def("backward(Tensor grad, Tensor y, Tensor probs, Tensor row_of, Tensor entry_of) "
        "-> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_combine_tokens, CompositeExplicitAutograd, m) {
  m.impl("forward", TORCH_BOX(&combine_tokens));
  m.impl("backward", TORCH_BOX(&combine_tokens_backward));
}
"""

load_inline(
    name="steelyard_combine_tokens",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
combine_tokens = torch.ops.steelyard_combine_tokens.forward.default
combine_tokens_backward = torch.ops.steelyard_combine_tokens.backward.default


class CombineTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, probs, row_of, entry_of):
        ctx.save_for_backward(y, probs, row_of, entry_of)
        return combine_tokens(y, probs, row_of)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        grad = grad if grad.stride(1) == 1 else grad.contiguous()
        return *combine_tokens_backward(grad, *ctx.saved_tensors), None, None


class ModelNew(nn.Module):
    def forward(self, y, probs, row_of, entry_of):
        y = y if y.stride(1) == 1 else y.contiguous()
        if torch.is_grad_enabled() and (y.requires_grad or probs.requires_grad):
            return CombineTokens.apply(y, probs, row_of, entry_of)
        return combine_tokens(y, probs, row_of)
