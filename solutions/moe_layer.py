"""A mixture-of-experts layer: route, permute, grouped product, SwiGLU, grouped product, combine.

Plan     The entries are sorted by expert (one launch), the tokens copied to their experts' rows,
         and torch._grouped_mm multiplies each expert's rows by its weights. The probabilities are
         applied with the activation, whose rows they scale, so that combining is a plain sum of
         each token's rows and its backward a copy: nothing of the second product is kept. Rows are
         as many as entries, whatever the ids; dropped entries leave the last ones unused, and
         every kernel and product stops before them. No count goes to the host.
         Backward: the gradient is permuted like the tokens; two grouped products for each of
         forward's. Kept: permuted tokens, h, a and the maps.
Products torch._grouped_mm takes bf16 whose rows and columns are whole 16 bytes, at most 1023
         experts and, without a transfer to the host, a GPU of capability 9.0. Rows start anywhere:
         an expert's rows only shift the address by whole rows. Others go expert by expert through
         torch.mm, after the offsets have come to the host.
Traffic  Weights and rows: DeepSeek-V3 TP8, 4096 tokens, top 8: 2.82 GB of weights, 0.67 ms at 4.23
         TB/s, and 0.36 ms of products at 989 TFLOP/s; permute, SwiGLU and sum 0.30 ms. Not
         measured yet.
"""

from itertools import pairwise

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cooperative_groups.h>
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
constexpr int kThreads = 128;

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

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("moe_layer: " + what);
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

Tensor empty_list(const Tensor& like, int32_t dtype, int64_t size) {
  const int64_t stride = 1;
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &type));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(1, &size, &stride, dtype, type, like.get_device(), &handle));
  return Tensor(handle);
}

Tensor empty_floats(const Tensor& like, int64_t size) {
  const int64_t stride = 1;
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &type));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_float32(),
                                                  type, like.get_device(), &handle));
  return Tensor(handle);
}

template <typename T>
Matrix<T> matrix(const Tensor& x) {
  return {static_cast<const T*>(x.data_ptr()), x.stride(0), x.stride(1)};
}

int32_t dtype_of(const Tensor& x) {
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  return dtype;
}

unsigned blocks_for(uint64_t items, unsigned per_block) {
  const uint64_t blocks = (items + per_block - 1) / per_block;
  if (blocks > INT32_MAX) fail(std::to_string(items) + " vectors need too many blocks");
  return blocks;
}

// Where each entry's row is: route_tokens.
namespace routing {

constexpr int kMaxThreads = 512;
constexpr int kKept = 4;                // entries of a lane in registers: a strip is 128 of a warp
constexpr int kMaxExperts = 4096;
constexpr int kWarpCounts = 32 * 1024;  // counts of a block's warps: 128 KB of shared memory
constexpr int kBlockCounts = 1 << 21;   // blocks^2 x experts: 8 MB that all blocks read from L2
constexpr int kDefaultShared = 48 << 10;

struct Shape {
  int entries, topk, experts, alignment;
  bool pad_empty;
  int64_t rows;  // of entry_of
  int64_t run;   // entries of a warp, a multiple of 32
};

struct Outputs {
  int* counts;
  int* offsets;
  int* row_of;
  int* entry_of;
};

__device__ int aligned_size(int count, const Shape& shape) {
  if (count == 0) return shape.pad_empty ? shape.alignment : 0;
  return int((unsigned(count) + shape.alignment - 1) / shape.alignment * shape.alignment);
}

// offsets[e] = values[0] + ... + values[e - 1] for e = 0 .. n; all threads of the block call it.
template <typename F>
__device__ void exclusive_scan(F value, int n, int* offsets) {
  __shared__ int smem_sums[kMaxThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int per_thread = (n + blockDim.x - 1) / blockDim.x, first = threadIdx.x * per_thread;
  int sum = 0;
#pragma unroll 1
  for (int i = first; i < min(first + per_thread, n); ++i) sum += value(i);
  int upto = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int lower = __shfl_up_sync(kFullMask, upto, step);
    if (lane >= step) upto += lower;
  }
  if (lane == 31) smem_sums[warp] = upto;
  __syncthreads();
  int before = 0;
  for (int i = 0; i < warps; ++i) before += i < warp ? smem_sums[i] : 0;
  int at = before + upto - sum;
#pragma unroll 1
  for (int i = first; i < min(first + per_thread, n); ++i) {
    offsets[i] = at;
    at += value(i);
  }
  if (threadIdx.x == blockDim.x - 1) offsets[n] = at;
  __syncthreads();
}

// block_counts: (blocks, experts), uninitialised; unused by a single block.
template <typename I>
__global__ void __launch_bounds__(kMaxThreads)
route_tokens_kernel(Matrix<I> indices, Shape shape, int* __restrict__ block_counts, Outputs out) {
  extern __shared__ int smem[];
  const int experts = shape.experts, threads = blockDim.x, warps = threads / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x;
  int* smem_place = smem;                           // (warps, experts): entries of earlier warps
  int* smem_total = smem_place + warps * experts;   // (experts,): of all blocks
  int* smem_start = smem_total + experts;           // (experts,): first row of this block
  int* smem_offset = smem_start + experts;          // (experts + 1,)
  int* place = smem_place + warp * experts;
  const int64_t run_start = (int64_t(blockIdx.x) * warps + warp) * shape.run;

  int expert[kKept];  // -1: dropped
  const auto load = [&](int64_t first) {
    I id[kKept];
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int64_t at = first + i * 32 + lane;
      const bool inside = at < shape.entries && at < run_start + shape.run;
      const int token = inside ? int(at) / shape.topk : 0;
      id[i] = inside ? indices(token, int(at) - token * shape.topk) : I(-1);
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) expert[i] = id[i] >= 0 && id[i] < experts ? int(id[i]) : -1;
  };
  const int64_t run_end = min(run_start + shape.run, int64_t(shape.entries));
  constexpr int kStrip = kKept * 32;
  load(run_start);
#pragma unroll 1
  for (int i = threadIdx.x; i < warps * experts; i += threads) smem_place[i] = 0;
  __syncthreads();
#pragma unroll 1
  for (int64_t first = run_start; first < run_end; first += kStrip) {
    if (first > run_start) load(first);
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (expert[i] >= 0) atomicAdd(place + expert[i], 1);
    }
  }
  __syncthreads();

#pragma unroll 1
  for (int e = threadIdx.x; e < experts; e += threads) {
    int sum = 0;
#pragma unroll 8
    for (int w = 0; w < warps; ++w) {
      const int count = smem_place[w * experts + e];
      smem_place[w * experts + e] = sum;
      sum += count;
    }
    if (blocks > 1) block_counts[int64_t(blockIdx.x) * experts + e] = sum;
    smem_total[e] = blocks > 1 ? 0 : sum;
    smem_start[e] = 0;
  }
  if (blocks > 1) {
    cooperative_groups::this_grid().sync();
    const int segments = max(1, threads / experts);  // threads that share an expert
#pragma unroll 1
    for (int i = threadIdx.x; i < segments * experts; i += threads) {
      const int segment = i / experts, e = i - segment * experts;
      int total = 0, before = 0;
#pragma unroll 8
      for (int b = segment; b < blocks; b += segments) {
        const int count = block_counts[int64_t(b) * experts + e];
        total += count;
        before += b < blockIdx.x ? count : 0;
      }
      atomicAdd(smem_total + e, total);
      atomicAdd(smem_start + e, before);
    }
  }
  __syncthreads();
  exclusive_scan([&](int e) { return aligned_size(smem_total[e], shape); }, experts, smem_offset);
#pragma unroll 1
  for (int e = threadIdx.x; e <= experts; e += threads) {
    if (blockIdx.x == 0) out.offsets[e] = smem_offset[e];
    if (blockIdx.x == 0 && e < experts) out.counts[e] = smem_total[e];
    if (e < experts) smem_start[e] += smem_offset[e];
  }
  __syncthreads();

#pragma unroll 1
  for (int64_t first = run_start; first < run_end; first += kStrip) {
    if (shape.run > kStrip) load(first);
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int e = expert[i];
      const unsigned alike = __match_any_sync(kFullMask, e);
      const int rank = __popc(alike & ((1u << lane) - 1));
      const int placed = e >= 0 ? place[e] : 0;
      __syncwarp();
      if (e >= 0 && rank == 0) place[e] = placed + __popc(alike);
      __syncwarp();
      const int64_t at = first + i * 32 + lane;
      const int row = e >= 0 ? smem_start[e] + placed + rank : -1;
      if (at < run_end) out.row_of[at] = row;
      if (row >= 0) out.entry_of[row] = int(at);
    }
  }
#pragma unroll 1
  for (int e = blockIdx.x * warps + warp; e < experts; e += blocks * warps) {
    for (int row = smem_offset[e] + smem_total[e] + lane; row < smem_offset[e + 1]; row += 32)
      out.entry_of[row] = -1;
  }
#pragma unroll 1
  for (int64_t row = smem_offset[experts] + int64_t(blockIdx.x) * threads + threadIdx.x;
       row < shape.rows; row += int64_t(blocks) * threads)
    out.entry_of[row] = -1;
}

int* ints(const Tensor& x) { return static_cast<int*>(x.data_ptr()); }

Shape shape_of(const Tensor& indices, int64_t experts, int64_t alignment, bool pad_empty) {
  if (!indices.is_cuda() || indices.dim() != 2) fail("indices must be (tokens, k) on a GPU");
  if (experts < 1 || experts > kMaxExperts)
    fail("experts must be 1 to 4096, not " + std::to_string(experts));
  if (alignment < 1 || alignment > 1 << 16)
    fail("alignment must be 1 to 65536, not " + std::to_string(alignment));
  const int64_t entries = indices.numel(), filled = entries < experts ? entries : experts;
  const int64_t spare = pad_empty ? experts * alignment : filled * (alignment - 1);
  const int64_t rows = (entries + spare) / alignment * alignment;
  if (rows > INT32_MAX) fail(std::to_string(rows) + " rows are too many (int32)");
  return {int(entries), int(indices.size(1)), int(experts), int(alignment), pad_empty, rows, 0};
}

// As many blocks as there are entries for, but few enough to read each other's counts.
int blocks_for(const Shape& shape, int threads, int device) {
  if (shape.entries <= kKept * threads) return 1;
  int most;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMultiProcessorCount, device),
        "asking for the number of multiprocessors");
  while (int64_t(most) * most * shape.experts > kBlockCounts) --most;
  const int wanted = (shape.entries - 1) / (kKept * threads) + 1;
  return wanted < most ? wanted : most;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> route_tokens(const Tensor& indices, int64_t experts,
                                                        int64_t alignment, bool pad_empty) {
  Shape shape = shape_of(indices, experts, alignment, pad_empty);
  const bool wide = indices.scalar_type() == ScalarType::Long;
  if (!wide && indices.scalar_type() != ScalarType::Int) fail("indices must be int32 or int64");
  const OnDevice on(indices);
  int warps = kMaxThreads / 32;
  while (warps * shape.experts > kWarpCounts) warps /= 2;
  const int threads = warps * 32, blocks = blocks_for(shape, threads, on.device);
  const int64_t all = int64_t(blocks) * threads;
  shape.run = (shape.entries + all - 1) / all * 32;

  const int32_t int32 = aoti_torch_dtype_int32();
  Tensor counts = empty_list(indices, int32, experts);
  Tensor offsets = empty_list(indices, int32, experts + 1);
  Tensor row_of = empty(indices, int32, indices.size(0), indices.size(1));
  Tensor entry_of = empty_list(indices, int32, shape.rows);
  Tensor block_counts = empty_list(indices, int32, blocks > 1 ? blocks * experts : 0);
  Outputs out{ints(counts), ints(offsets), ints(row_of), ints(entry_of)};
  const size_t shared = sizeof(int) * ((warps + 3) * experts + 1);
  const auto launch = [&](auto i) {
    using I = decltype(i);
    auto* kernel = route_tokens_kernel<I>;
    if (shared > kDefaultShared)
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
            "asking for shared memory");
    Matrix<I> ids = matrix<I>(indices);
    int* between = ints(block_counts);
    if (blocks == 1) {
      kernel<<<1, threads, shared, on.stream>>>(ids, shape, between, out);
      return check(cudaGetLastError(), "launch of route_tokens_kernel");
    }
    void* arguments[] = {&ids, &shape, &between, &out};
    check(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), arguments, shared,
                                      on.stream),
          "launch of route_tokens_kernel");
  };
  wide ? launch(int64_t{}) : launch(int32_t{});
  return {counts, offsets, row_of, entry_of};
}

}  // namespace routing

// Tokens to rows and rows to tokens, as in permute_tokens and combine_tokens.
namespace moving {

constexpr int kVectors = 4;      // x kThreads x 16 bytes: the piece of a token that a block has
constexpr int kClearRows = 8;    // rows a warp looks at for padding
constexpr int kSumThreads = 128;
constexpr int kBatch = 8;        // rows in flight

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

// The probabilities' side of a permutation: an unsigned integer as wide as they are.
template <typename P>
struct Moved {
  Matrix<P> probs;
  P* out;
};

// Blocks before `clearing` clear padding rows; the others each have `piece` vectors of a token.
template <typename V, typename P>
__global__ void __launch_bounds__(kThreads)
permute_tokens_kernel(const V* __restrict__ x, int64_t x_stride, Moved<P> moved, Map map,
                      const int* __restrict__ entry_of, int width, unsigned pieces, int piece,
                      unsigned clearing, V* __restrict__ out) {
  const int lane = threadIdx.x % 32;
  if (blockIdx.x < clearing) {
    const int64_t warp = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
    const int64_t mine = warp * kClearRows + lane;
    const bool empty = lane < kClearRows && mine < map.rows && entry_of[mine] < 0;
    if (empty) moved.out[mine] = P{};
    unsigned left = __ballot_sync(kFullMask, empty);
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      V* row = out + (warp * kClearRows + __ffs(left) - 1) * width;
#pragma unroll 4
      for (int i = lane; i < width; i += 32) row[i] = V{};
    }
    return;
  }
  const unsigned block = blockIdx.x - clearing;
  const int64_t token = block / pieces;
  const int first = int(block % pieces) * piece, end = min(first + piece, width);
  V value[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int column = first + i * kThreads + int(threadIdx.x);
    if (column < end) value[i] = x[token * x_stride + column];
  }
#pragma unroll 1
  for (int k = 0; k < map.topk; k += 32) {
    const int my_row = map(token, k + lane);
    if (first == 0 && threadIdx.x < 32 && my_row >= 0)
      moved.out[my_row] = moved.probs(token, k + lane);
    unsigned left = __ballot_sync(kFullMask, my_row >= 0);
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      const int64_t row = __shfl_sync(kFullMask, my_row, __ffs(left) - 1);
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int column = first + i * kThreads + int(threadIdx.x);
        if (column < end) out[row * width + column] = value[i];
      }
    }
  }
}

// grad_probs[t, k] = grad[row_of[t, k]], 0 where the entry is dropped.
template <typename P>
__global__ void __launch_bounds__(kThreads)
gather_probs_kernel(const P* __restrict__ grad, int64_t grad_stride, Map map, int64_t entries,
                    P* __restrict__ grad_probs) {
  const int64_t entry = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (entry >= entries) return;
  const int token = int(entry) / map.topk, row = map(token, int(entry) - token * map.topk);
  grad_probs[entry] = row >= 0 ? grad[row * grad_stride] : P{};
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

// Bytes from one row to the next.
int64_t row_pitch(const Tensor& x) {
  return (x.size(0) > 1 ? x.stride(0) : x.size(1)) * x.element_size();
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

// Calls f with a vector type that divides every address: base pointers, row strides, row bytes.
template <typename F>
void with_vector(uint64_t addresses, F f) {
  if (addresses % 16 == 0) return f(uint4{});
  if (addresses % 4 == 0) return f(uint32_t{});
  if (addresses % 2 == 0) return f(uint16_t{});
  return f(uint8_t{});
}

// Calls f with an unsigned integer as wide as the probabilities, which are only moved.
template <typename F>
void with_bits(const Tensor& probs, F f) {
  if (probs.element_size() == 4) return f(uint32_t{});
  f(uint16_t{});
}

// Rows without an entry are left as they are: nobody reads them.
std::tuple<Tensor, Tensor> permute(const Tensor& x, const Tensor& probs, const Tensor& row_of) {
  check_hidden(x);
  check_probs(probs, row_of);
  if (x.size(0) != row_of.size(0)) fail("x and indices must have as many tokens");
  const OnDevice on(x);
  const int64_t rows = row_of.numel(), row_bytes = x.size(1) * x.element_size();
  const Map map = map_of(row_of, rows);
  Tensor out = empty(x, dtype_of(x), rows, x.size(1));
  Tensor out_probs = empty_list(x, dtype_of(probs), rows);
  if (rows == 0) return {out, out_probs};
  const int64_t pitch = row_pitch(x);
  with_vector(reinterpret_cast<uint64_t>(x.data_ptr()) | pitch | row_bytes, [&](auto v) {
    with_bits(probs, [&](auto p) {
      using V = decltype(v);
      using P = decltype(p);
      const int64_t width = row_bytes / sizeof(V);
      const unsigned pieces = width ? blocks_for(width, kThreads * kVectors) : 1;
      const int piece = int((width / pieces + 31) / 32 * 32);
      const unsigned used = width ? blocks_for(width, piece) : 1;
      permute_tokens_kernel<V, P><<<blocks_for(x.size(0) * used, 1), kThreads, 0, on.stream>>>(
          static_cast<const V*>(x.data_ptr()), pitch / int64_t(sizeof(V)),
          Moved<P>{matrix<P>(probs), static_cast<P*>(out_probs.data_ptr())}, map, nullptr, width,
          used, piece, 0, static_cast<V*>(out.data_ptr()));
    });
  });
  check(cudaGetLastError(), "launch of permute_tokens_kernel");
  return {out, out_probs};
}

Tensor combine(const Tensor& y, const Tensor& row_of) {
  check_hidden(y);
  const OnDevice on(y);
  return sum_rows(y, Weights{}, row_of, on.stream);
}

Tensor gather_probs(const Tensor& grad, const Tensor& row_of) {
  if (!grad.is_cuda() || grad.dim() != 1) fail("the probabilities' gradient must be (rows,)");
  const OnDevice on(grad);
  const Map map = map_of(row_of, grad.size(0));
  Tensor grad_probs = empty(grad, dtype_of(grad), row_of.size(0), row_of.size(1));
  const int64_t entries = row_of.numel();
  if (entries == 0) return grad_probs;
  with_bits(grad, [&](auto p) {
    using P = decltype(p);
    gather_probs_kernel<P><<<blocks_for(entries, kThreads), kThreads, 0, on.stream>>>(
        static_cast<const P*>(grad.data_ptr()), grad.stride(0), map, entries,
        static_cast<P*>(grad_probs.data_ptr()));
  });
  check(cudaGetLastError(), "launch of gather_probs_kernel");
  return grad_probs;
}

}  // namespace moving

// The activation between the two products, as in weighted_swiglu.
namespace activation {

constexpr int kVectors = 2;          // of gates, and as many of ups, in flight per thread
constexpr int kWarps = 8;            // of a backward's block
constexpr int64_t kFewRows = 4096;   // fewer than fill the device with one warp each

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kFullMask, x, step);
  return x;
}

template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};

// Rows of x, (gate | up), `stride` elements apart, and the weights.
template <typename T>
struct Rows {
  const T* data;
  int64_t stride;
  const float* weight;
  int64_t weight_stride, rows;
  int width;
};

struct Variant {
  bool clamped;
  float limit, alpha;
};

__device__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// NaN stays NaN, as torch's clamp has it.
__device__ float clamped(float x, float low, float high) {
  return x > high ? high : x < low ? low : x;
}

__device__ float activated(float gate, float up, const Variant& variant) {
  if (!variant.clamped) return gate * sigmoid(gate) * up;
  gate = clamped(gate, -INFINITY, variant.limit);
  up = clamped(up, -variant.limit, variant.limit);
  return gate * sigmoid(variant.alpha * gate) * (up + 1.f);
}

struct Slopes {
  float value, gate, up;  // activated, and its derivatives
};

__device__ Slopes slopes_of(float gate, float up, const Variant& variant) {
  if (!variant.clamped) {
    const float s = sigmoid(gate), silu = gate * s;
    return {silu * up, up * (s + silu * (1.f - s)), silu};
  }
  const bool gate_moves = !(gate > variant.limit);
  const bool up_moves = !(up > variant.limit || up < -variant.limit);
  const float g = clamped(gate, -INFINITY, variant.limit);
  const float u = clamped(up, -variant.limit, variant.limit) + 1.f;
  const float s = sigmoid(variant.alpha * g), soft = g * s;
  const float slope = u * (s + variant.alpha * soft * (1.f - s));
  return {soft * u, gate_moves ? slope : 0.f, up_moves ? soft : 0.f};
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
swiglu_kernel(Rows<T> x, const int* __restrict__ used, Variant variant, T* __restrict__ out) {
  const unsigned width = x.width / N;  // in vectors
  const uint64_t total = uint64_t(*used) * width;
  const uint64_t first = uint64_t(blockIdx.x) * (kThreads * kVectors) + threadIdx.x;
  Pack<T, N> gate[kVectors], up[kVectors];
  float weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint64_t at = first + i * kThreads;
    if (at >= total) continue;
    const int64_t row = total >> 32 ? at / width : unsigned(at) / width;
    const T* from = x.data + row * x.stride + (at - row * width) * N;
    gate[i] = *reinterpret_cast<const Pack<T, N>*>(from);
    up[i] = *reinterpret_cast<const Pack<T, N>*>(from + x.width);
    weight[i] = x.weight[row * x.weight_stride];
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint64_t at = first + i * kThreads;
    if (at >= total) continue;
    Pack<T, N> value;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float active = activated(to_float(gate[i].at[j]), to_float(up[i].at[j]), variant);
      from_float(active * weight[i], value.at[j]);
    }
    *reinterpret_cast<Pack<T, N>*>(out + at * N) = value;
  }
}

// kRowWarps warps a row: 1 or kWarps.
template <typename T, int N, int kRowWarps>
__global__ void __launch_bounds__(32 * kWarps)
swiglu_backward_kernel(Rows<T> x, const int* __restrict__ used, const T* __restrict__ grad,
                       int64_t grad_stride, Variant variant, T* __restrict__ grad_x,
                       float* __restrict__ grad_weight) {
  __shared__ float smem_sum[kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * (kWarps / kRowWarps) + warp / kRowWarps;
  if (row >= *used) return;  // with kRowWarps > 1 the whole block
  const T* from = x.data + row * x.stride;
  const T* grad_from = grad + row * grad_stride;
  T* to = grad_x + row * 2 * x.width;
  const float weight = x.weight[row * x.weight_stride];
  float sum = 0.f;
#pragma unroll 2
  for (int at = ((warp % kRowWarps) * 32 + lane) * N; at < x.width; at += 32 * kRowWarps * N) {
    const Pack<T, N> gate = *reinterpret_cast<const Pack<T, N>*>(from + at);
    const Pack<T, N> up = *reinterpret_cast<const Pack<T, N>*>(from + x.width + at);
    const Pack<T, N> down = *reinterpret_cast<const Pack<T, N>*>(grad_from + at);
    Pack<T, N> grad_gate, grad_up;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Slopes slopes = slopes_of(to_float(gate.at[j]), to_float(up.at[j]), variant);
      const float g = to_float(down.at[j]);
      sum += slopes.value * g;
      from_float(slopes.gate * (g * weight), grad_gate.at[j]);
      from_float(slopes.up * (g * weight), grad_up.at[j]);
    }
    *reinterpret_cast<Pack<T, N>*>(to + at) = grad_gate;
    *reinterpret_cast<Pack<T, N>*>(to + x.width + at) = grad_up;
  }
  sum = warp_sum(sum);
  if constexpr (kRowWarps > 1) {
    if (lane == 0) smem_sum[warp] = sum;
    __syncthreads();
    if (warp == 0) sum = warp_sum(lane < kWarps ? smem_sum[lane] : 0.f);
  }
  if (warp % kRowWarps == 0 && lane == 0) grad_weight[row] = sum;
}

void check_inputs(const Tensor& x, const Tensor& weight) {
  if (!x.is_cuda() || x.dim() != 2 || x.size(1) % 2 != 0 || (x.size(1) > 1 && x.stride(1) != 1))
    fail("x must be (rows, 2 * width) on a GPU, each row contiguous");
  if (!weight.is_cuda() || weight.get_device() != x.get_device() || weight.dim() != 1 ||
      weight.size(0) != x.size(0) || weight.scalar_type() != ScalarType::Float)
    fail("weight must be (rows,), fp32, on x's device");
  if (x.size(1) > INT32_MAX) fail("rows of x must be shorter than 2^31");
}

template <typename T>
Rows<T> rows_of(const Tensor& x, const Tensor& weight) {
  return {static_cast<const T*>(x.data_ptr()), x.stride(0),
          static_cast<const float*>(weight.data_ptr()), weight.stride(0), x.size(0),
          int(x.size(1) / 2)};
}

// On the device: the rows that have an entry come first.
const int* rows_used(const Tensor& offsets) {
  return static_cast<const int*>(offsets.data_ptr()) + offsets.size(0) - 1;
}

uint64_t addresses_of(const Tensor& x) {
  const uint64_t step = x.size(0) > 1 ? x.stride(0) * x.element_size() : 0;
  return reinterpret_cast<uint64_t>(x.data_ptr()) | step;
}

// Calls f with a value of x's type and the elements of a vector that divides every address.
template <typename F>
void with_types(const Tensor& x, uint64_t addresses, F f) {
  const bool whole = (addresses | x.size(1) / 2 * x.element_size()) % 16 == 0;
  const auto with_vector = [&](auto t) {
    constexpr int N = 16 / sizeof(t);
    if (whole) return f(t, std::integral_constant<int, N>{});
    f(t, std::integral_constant<int, 1>{});
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: return with_vector(float{});
    case ScalarType::Half: return with_vector(__half{});
    case ScalarType::BFloat16: return with_vector(__nv_bfloat16{});
    default: fail("x must be fp32, fp16 or bf16");
  }
}

Tensor swiglu(const Tensor& x, const Tensor& weight, const Tensor& offsets, bool clamped,
              double limit, double alpha) {
  check_inputs(x, weight);
  const OnDevice on(x);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  Tensor out = empty(x, dtype, x.size(0), x.size(1) / 2);
  const Variant variant{clamped, float(limit), float(alpha)};
  with_types(x, addresses_of(x), [&](auto t, auto n) {
    using T = decltype(t);
    constexpr int N = decltype(n)::value;
    const Rows<T> rows = rows_of<T>(x, weight);
    if (rows.rows * rows.width == 0) return;
    const unsigned blocks = blocks_for(rows.rows * (rows.width / N), kThreads * kVectors);
    swiglu_kernel<T, N><<<blocks, kThreads, 0, on.stream>>>(
        rows, rows_used(offsets), variant, static_cast<T*>(out.data_ptr()));
  });
  check(cudaGetLastError(), "launch of swiglu_kernel");
  return out;
}

std::tuple<Tensor, Tensor> swiglu_backward(const Tensor& grad, const Tensor& x,
                                           const Tensor& weight, const Tensor& offsets,
                                           bool clamped, double limit, double alpha) {
  check_inputs(x, weight);
  const OnDevice on(x);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  Tensor grad_x = empty(x, dtype, x.size(0), x.size(1));
  Tensor grad_weight = empty_floats(x, x.size(0));
  const Variant variant{clamped, float(limit), float(alpha)};
  with_types(x, addresses_of(x) | addresses_of(grad), [&](auto t, auto n) {
    using T = decltype(t);
    constexpr int N = decltype(n)::value;
    const Rows<T> rows = rows_of<T>(x, weight);
    if (rows.rows == 0) return;
    const bool few = rows.rows < kFewRows;
    auto* kernel = few ? swiglu_backward_kernel<T, N, kWarps>
                       : swiglu_backward_kernel<T, N, 1>;
    const unsigned blocks = blocks_for(rows.rows, few ? 1 : kWarps);
    kernel<<<blocks, 32 * kWarps, 0, on.stream>>>(
        rows, rows_used(offsets), static_cast<const T*>(grad.data_ptr()), grad.stride(0), variant,
        static_cast<T*>(grad_x.data_ptr()), static_cast<float*>(grad_weight.data_ptr()));
  });
  check(cudaGetLastError(), "launch of swiglu_backward_kernel");
  return {grad_x, grad_weight};
}

}  // namespace activation

STABLE_TORCH_LIBRARY(steelyard_moe_layer, m) {
  m.def("route_tokens(Tensor indices, int experts, int alignment, bool pad_empty) "
        "-> (Tensor, Tensor, Tensor, Tensor)");
  m.def("permute(Tensor x, Tensor probs, Tensor row_of) -> (Tensor, Tensor)");
  m.def("combine(Tensor y, Tensor row_of) -> Tensor");
  m.def("gather_probs(Tensor grad, Tensor row_of) -> Tensor");
  m.def("swiglu(Tensor x, Tensor weight, Tensor offsets, bool clamped, float limit, float alpha) "
        "-> Tensor");
  m.def("swiglu_backward(Tensor grad, Tensor x, Tensor weight, Tensor offsets, bool clamped, "
        "float limit, float alpha) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_moe_layer, CompositeExplicitAutograd, m) {
  m.impl("route_tokens", TORCH_BOX(&routing::route_tokens));
  m.impl("permute", TORCH_BOX(&moving::permute));
  m.impl("combine", TORCH_BOX(&moving::combine));
  m.impl("gather_probs", TORCH_BOX(&moving::gather_probs));
  m.impl("swiglu", TORCH_BOX(&activation::swiglu));
  m.impl("swiglu_backward", TORCH_BOX(&activation::swiglu_backward));
}
"""

load_inline(
    name="steelyard_moe_layer",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
ops = torch.ops.steelyard_moe_layer
route_tokens = ops.route_tokens.default
permute = ops.permute.default
combine = ops.combine.default
gather_probs = ops.gather_probs.default
swiglu = ops.swiglu.default
swiglu_backward = ops.swiglu_backward.default

MAX_GROUPS = 1023  # of torch._grouped_mm


def is_whole(matrix):
    """Whether a matrix, or a stack of them, begins and steps by multiples of 16 bytes."""
    *_, rows, columns = matrix.shape
    *outer, row_stride, column_stride = matrix.stride()
    step, least = (row_stride, columns) if column_stride == 1 else (column_stride, rows)
    steps = (step, *outer)
    return (
        min(row_stride, column_stride) == 1
        and step >= least
        and matrix.data_ptr() % 16 == 0
        and all(s * matrix.element_size() % 16 == 0 for s in steps)
    )


def is_grouped(rows, *others):
    """Whether torch._grouped_mm takes these operands."""
    operands = (rows, *others)
    groups = max(len(x) if x.dim() == 3 else 0 for x in operands)
    return (
        all(x.dtype == torch.bfloat16 and min(x.shape) > 0 and is_whole(x) for x in operands)
        and groups <= MAX_GROUPS
    )


def times_weights(rows, weights, offsets):
    """(rows, n): each expert's rows (rows, m) times its weights (experts, m, n)."""
    if is_grouped(rows, weights):
        return torch._grouped_mm(rows, weights, offs=offsets[1:])
    out = rows.new_empty(len(rows), weights.shape[2])
    for weight, (start, end) in zip(weights, pairwise(offsets.tolist()), strict=True):
        torch.mm(rows[start:end], weight, out=out[start:end])
    return out


def of_weights(left, right, offsets):
    """(experts, m, n): each expert's rows of left (rows, m), transposed, times those of right."""
    experts = len(offsets) - 1
    if experts <= MAX_GROUPS and is_grouped(left.t(), right):
        return torch._grouped_mm(left.t(), right, offs=offsets[1:])
    out = left.new_empty(experts, left.shape[1], right.shape[1])
    for product, (start, end) in zip(out, pairwise(offsets.tolist()), strict=True):
        torch.mm(left[start:end].t(), right[start:end], out=product)
    return out


def check_weights(x, gate_up, down):
    experts, columns, hidden = gate_up.shape
    if columns % 2 or x.shape[1] != hidden or down.shape != (experts, hidden, columns // 2):
        raise RuntimeError(
            f"moe_layer: x {list(x.shape)}, gate_up {list(gate_up.shape)} and down "
            f"{list(down.shape)} must be (tokens, hidden), (experts, 2 * width, hidden) and "
            "(experts, hidden, width)"
        )
    if not x.dtype == gate_up.dtype == down.dtype:
        raise RuntimeError("moe_layer: x, gate_up and down must be of one type")


def forward(x, probs, indices, gate_up, down, variant):
    """The result, and what backward needs of this call."""
    _, offsets, row_of, _ = route_tokens(indices, len(gate_up), 1, False)
    rows, weight = permute(x, probs, row_of)
    h = times_weights(rows, gate_up.transpose(1, 2), offsets)
    a = swiglu(h, weight, offsets, *variant)
    y = times_weights(a, down.transpose(1, 2), offsets)
    return combine(y, row_of), (rows, weight, h, a, offsets, row_of)


class MoeLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, probs, indices, gate_up, down, variant):
        out, kept = forward(x, probs, indices, gate_up, down, variant)
        ctx.save_for_backward(probs, gate_up, down, *kept)
        ctx.variant = variant
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        probs, gate_up, down, rows, weight, h, a, offsets, row_of = ctx.saved_tensors
        wants_x, wants_probs, _, wants_gate_up, wants_down, _ = ctx.needs_input_grad
        grad = grad if grad.stride(1) == 1 else grad.contiguous()
        grad_y, _ = permute(grad, probs, row_of)
        grad_down = of_weights(grad_y, a, offsets) if wants_down else None
        grad_a = times_weights(grad_y, down, offsets)
        grad_h, grad_weight = swiglu_backward(grad_a, h, weight, offsets, *ctx.variant)
        grad_probs = gather_probs(grad_weight, row_of) if wants_probs else None
        grad_gate_up = of_weights(grad_h, rows, offsets) if wants_gate_up else None
        grad_x = combine(times_weights(grad_h, gate_up, offsets), row_of) if wants_x else None
        return grad_x, grad_probs, None, grad_gate_up, grad_down, None


class ModelNew(nn.Module):
    def __init__(self, variant="plain", limit=7.0, alpha=1.702):
        super().__init__()
        self.variant = (variant == "clamped", limit, alpha)

    def forward(self, x, probs, indices, gate_up, down):
        check_weights(x, gate_up, down)
        x = x if x.stride(1) == 1 else x.contiguous()
        trained = any(t.requires_grad for t in (x, probs, gate_up, down))
        if torch.is_grad_enabled() and trained:
            return MoeLayer.apply(x, probs, indices, gate_up, down, self.variant)
        return forward(x, probs, indices, gate_up, down, self.variant)[0]
