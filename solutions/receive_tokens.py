"""A dispatcher's tokens (ids with -1, probabilities, rows) to expert-major rows, in four launches.

Plan     count: a block counts the experts of kChunk entries in shared memory. scan: one block turns
         those counts into each chunk's first slot of each expert, and the totals into aligned
         offsets. place: a warp owns a run of a chunk's entries and ranks 32 at a time by matching
         lanes, so that slots follow the order of the entries; it writes rows and probabilities.
         move: a block reads a token's row once and stores it to every row it goes to; some further
         blocks zero what padding and spare rows there are. No atomics on global memory, nothing
         waits for the host: the caller says how many rows there are.
Traffic  (tokens with a local expert + num_rows) x hidden x bytes, and 16 to 24 bytes an entry:
         4096 tokens, top 8, half of it local, 7168, bf16: 294 MB, 69 us at 4.23 TB/s; all local:
         530 MB, 125 us. Not measured yet.
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
constexpr int kWarps = 8;          // of the blocks that count and place
constexpr int kRunRounds = 8;      // of 32 entries each: what a warp of them owns
constexpr int kRun = 32 * kRunRounds, kChunk = kWarps * kRun;
constexpr int kScanWarps = 32;
constexpr int kMaxExperts = 1024;  // kWarps counters for each fill 32 KB of shared memory
constexpr int kMoveThreads = 128;
constexpr int kVectors = 4;        // of a row in flight per thread
constexpr int kZeroBlocks = 132;

// A matrix with any strides, in elements.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;
  __device__ T operator()(int64_t row, int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
};

// What all kernels know. `slots` (chunks, experts): counts first, then each chunk's first slot.
struct Plan {
  int64_t entries, num_rows;
  int topk, experts, alignment, chunks;
  int *slots, *offsets, *counts, *row_of;
};

// Expert of an entry, or -1.
template <typename I>
__device__ int expert_of(const Matrix<I>& ids, const Plan& plan, int64_t entry) {
  if (entry >= plan.entries) return -1;
  const int64_t token =
      plan.entries >> 31 ? entry / plan.topk : unsigned(entry) / unsigned(plan.topk);
  const I id = ids(token, entry - token * plan.topk);
  return id >= 0 && id < plan.experts ? int(id) : -1;
}

template <typename I>
__global__ void __launch_bounds__(32 * kWarps) count_kernel(Matrix<I> ids, Plan plan) {
  extern __shared__ int smem_count[];
  for (int e = threadIdx.x; e < plan.experts; e += 32 * kWarps) smem_count[e] = 0;
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * kChunk + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kRunRounds; ++i) {
    const int expert = expert_of(ids, plan, first + i * 32 * kWarps);
    if (expert >= 0) atomicAdd(smem_count + expert, 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < plan.experts; e += 32 * kWarps)
    plan.slots[int64_t(blockIdx.x) * plan.experts + e] = smem_count[e];
}

// Inclusive sum over the lanes up to this one.
__device__ int warp_scan(int x) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int lower = __shfl_up_sync(kFullMask, x, step);
    if (int(threadIdx.x % 32) >= step) x += lower;
  }
  return x;
}

// One block. A warp owns an expert's column of `slots`; then the first warp lays the experts out.
__global__ void __launch_bounds__(32 * kScanWarps) scan_kernel(Plan plan) {
  __shared__ int smem_total[kMaxExperts];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int e = warp; e < plan.experts; e += kScanWarps) {
    int total = 0;
    for (int start = 0; start < plan.chunks; start += 32) {
      const int chunk = start + lane;
      int* at = plan.slots + int64_t(chunk) * plan.experts + e;
      const int count = chunk < plan.chunks ? *at : 0;
      const int sum = warp_scan(count);
      if (chunk < plan.chunks) *at = total + sum - count;
      total += __shfl_sync(kFullMask, sum, 31);
    }
    if (lane == 0) smem_total[e] = total;
  }
  __syncthreads();
  if (warp > 0) return;
  int end = 0;
  for (int start = 0; start < plan.experts; start += 32) {
    const int e = start + lane, count = e < plan.experts ? smem_total[e] : 0;
    const int taken = (count + plan.alignment - 1) / plan.alignment * plan.alignment;
    const int sum = warp_scan(taken);
    if (e < plan.experts) {
      plan.offsets[e] = end + sum - taken;
      plan.counts[e] = count;
    }
    end += __shfl_sync(kFullMask, sum, 31);
  }
  if (lane == 0) plan.offsets[plan.experts] = end;
}

// smem_next (kWarps, experts): the next row of each expert for each warp's entries.
template <typename I>
__global__ void __launch_bounds__(32 * kWarps)
place_kernel(Matrix<I> ids, Matrix<float> probs, Plan plan, float* __restrict__ out_probs) {
  extern __shared__ int smem_next[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = int64_t(blockIdx.x) * kChunk + warp * kRun + lane;
  for (int i = threadIdx.x; i < kWarps * plan.experts; i += 32 * kWarps) smem_next[i] = 0;
  __syncthreads();
  int* mine = smem_next + warp * plan.experts;
#pragma unroll
  for (int i = 0; i < kRunRounds; ++i) {
    const int expert = expert_of(ids, plan, first + i * 32);
    if (expert >= 0) atomicAdd(mine + expert, 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < plan.experts; e += 32 * kWarps) {
    int row = plan.offsets[e] + plan.slots[int64_t(blockIdx.x) * plan.experts + e];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int count = smem_next[w * plan.experts + e];
      smem_next[w * plan.experts + e] = row;
      row += count;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < kRunRounds; ++i) {
    const int64_t entry = first + i * 32;
    const int here = expert_of(ids, plan, entry);
    const unsigned same = __match_any_sync(kFullMask, here);
    const unsigned before = same & ((1u << lane) - 1);
    int row = here >= 0 ? mine[here] + __popc(before) : -1;
    __syncwarp();  // all have read before the first of each expert counts them
    if (here >= 0 && before == 0) mine[here] += __popc(same);
    __syncwarp();
    if (row >= plan.num_rows) row = -1;
    if (entry < plan.entries) plan.row_of[entry] = row;
    if (row >= 0) out_probs[row] = probs(entry / plan.topk, entry % plan.topk);
  }
}

// Zeros rows [from, to) of `out` and their probabilities; the block's `part` of `parts`.
template <typename V>
__device__ void zero_rows(V* __restrict__ out, float* __restrict__ out_probs, int64_t from,
                          int64_t to, int64_t width, int part, int parts) {
  const int64_t step = int64_t(parts) * kMoveThreads;
  const int64_t start = int64_t(part) * kMoveThreads + threadIdx.x;
  for (int64_t i = from * width + start; i < to * width; i += step) out[i] = V{};
  for (int64_t i = from + start; i < to; i += step) out_probs[i] = 0.f;
}

// Blocks below `tokens` move a token's row each; the others zero the rows that no entry fills.
template <typename V>
__global__ void __launch_bounds__(kMoveThreads)
move_kernel(const V* __restrict__ hidden, int64_t stride, int64_t tokens, int64_t width, Plan plan,
            V* __restrict__ out, float* __restrict__ out_probs) {
  if (blockIdx.x >= tokens) {
    const int part = blockIdx.x - tokens;
    for (int e = part; e < plan.experts; e += kZeroBlocks) {
      const int64_t from = int64_t(plan.offsets[e]) + plan.counts[e];
      const int64_t to = min(int64_t(plan.offsets[e + 1]), plan.num_rows);
      zero_rows(out, out_probs, from, to, width, 0, 1);
    }
    zero_rows(out, out_probs, plan.offsets[plan.experts], plan.num_rows, width, part, kZeroBlocks);
    return;
  }
  const int64_t token = blockIdx.x;
  const int* rows = plan.row_of + token * plan.topk;
  bool any = false;
  for (int k = 0; k < plan.topk; ++k) any |= rows[k] >= 0;
  if (!any) return;
#pragma unroll 1
  for (int64_t first = threadIdx.x; first < width; first += kMoveThreads * kVectors) {
    V value[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = first + i * kMoveThreads;
      if (at < width) value[i] = hidden[token * stride + at];
    }
#pragma unroll 1
    for (int k = 0; k < plan.topk; ++k) {
      const int64_t row = rows[k];
      if (row < 0) continue;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int64_t at = first + i * kMoveThreads;
        if (at < width) out[row * width + at] = value[i];
      }
    }
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("receive_tokens: " + what);
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

template <typename T>
Matrix<T> matrix(const Tensor& x) {
  return {static_cast<const T*>(x.data_ptr()), x.stride(0), x.stride(1)};
}

void check_inputs(const Tensor& hidden, const Tensor& ids, const Tensor& probs) {
  if (!hidden.is_cuda() || hidden.dim() != 2 || (hidden.size(1) > 1 && hidden.stride(1) != 1))
    fail("hidden must be (tokens, hidden) on a GPU, each row contiguous");
  if (!ids.is_cuda() || !probs.is_cuda() || ids.get_device() != hidden.get_device() ||
      probs.get_device() != hidden.get_device())
    fail("ids and probs must be on hidden's device");
  if (ids.dim() != 2 || probs.dim() != 2 || ids.size(0) != hidden.size(0) ||
      probs.size(0) != ids.size(0) || probs.size(1) != ids.size(1))
    fail("ids and probs must both be (tokens, k), and hidden have as many rows");
  if (ids.scalar_type() != ScalarType::Int && ids.scalar_type() != ScalarType::Long)
    fail("ids must be int32 or int64");
  if (probs.scalar_type() != ScalarType::Float) fail("probs must be fp32");
}

Plan plan_of(const Tensor& ids, int64_t experts, int64_t alignment, int64_t num_rows) {
  if (experts < 1 || experts > kMaxExperts || alignment < 1 || alignment > (1 << 20))
    fail("experts must be 1 to 1024 and alignment 1 to 2^20, not " + std::to_string(experts) +
         " and " + std::to_string(alignment));
  const int64_t entries = ids.numel();
  if (num_rows < 0 || num_rows > INT32_MAX || entries + experts * alignment > INT32_MAX)
    fail("num_rows must be 0 to 2^31 - 1, and tokens x k below 2^31");
  Plan plan{entries, num_rows, int(ids.size(1)), int(experts), int(alignment), 0};
  plan.chunks = (entries + kChunk - 1) / kChunk;
  return plan;
}

template <typename I>
void map_entries(const Tensor& ids, const Tensor& probs, const Plan& plan, float* out_probs,
                 cudaStream_t stream) {
  const int shared = plan.experts * sizeof(int);
  if (plan.chunks > 0) {
    count_kernel<I><<<plan.chunks, 32 * kWarps, shared, stream>>>(matrix<I>(ids), plan);
    check(cudaGetLastError(), "launch of count_kernel");
  }
  scan_kernel<<<1, 32 * kScanWarps, 0, stream>>>(plan);
  check(cudaGetLastError(), "launch of scan_kernel");
  if (plan.chunks > 0) {
    place_kernel<I><<<plan.chunks, 32 * kWarps, kWarps * shared, stream>>>(
        matrix<I>(ids), matrix<float>(probs), plan, out_probs);
    check(cudaGetLastError(), "launch of place_kernel");
  }
}

// Calls f with a vector type that divides every address: base pointers, row strides, row bytes.
template <typename F>
void with_vector(uint64_t addresses, F f) {
  if (addresses % 16 == 0) return f(uint4{});
  if (addresses % 4 == 0) return f(uint32_t{});
  if (addresses % 2 == 0) return f(uint16_t{});
  return f(uint8_t{});
}

void move_rows(const Tensor& hidden, const Plan& plan, const Tensor& out, float* out_probs,
               cudaStream_t stream) {
  if (plan.num_rows == 0) return;
  const int64_t tokens = hidden.size(0), row_bytes = out.size(1) * out.element_size();
  const int64_t stride = tokens > 1 ? hidden.stride(0) * hidden.element_size() : row_bytes;
  with_vector(reinterpret_cast<uint64_t>(hidden.data_ptr()) | stride | row_bytes, [&](auto v) {
    using V = decltype(v);
    move_kernel<V><<<tokens + kZeroBlocks, kMoveThreads, 0, stream>>>(
        static_cast<const V*>(hidden.data_ptr()), stride / int64_t(sizeof(V)), tokens,
        row_bytes / sizeof(V), plan, static_cast<V*>(out.data_ptr()), out_probs);
  });
  check(cudaGetLastError(), "launch of move_kernel");
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> receive_tokens(
    const Tensor& hidden, const Tensor& ids, const Tensor& probs, int64_t num_rows, int64_t experts,
    int64_t alignment) {
  check_inputs(hidden, ids, probs);
  Plan plan = plan_of(ids, experts, alignment, num_rows);
  if (hidden.size(0) > INT32_MAX - kZeroBlocks) fail("hidden has too many rows");
  const OnDevice on(hidden);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(hidden.get(), &dtype));
  const int32_t int32 = aoti_torch_dtype_int32();
  Tensor out = empty(hidden, dtype, num_rows, hidden.size(1));
  Tensor out_probs = empty_list(hidden, aoti_torch_dtype_float32(), num_rows);
  Tensor offsets = empty_list(hidden, int32, experts + 1);
  Tensor counts = empty_list(hidden, int32, experts);
  Tensor row_of = empty(hidden, int32, ids.size(0), ids.size(1));
  Tensor slots = empty(hidden, int32, plan.chunks, experts);
  plan.slots = static_cast<int*>(slots.data_ptr());
  plan.offsets = static_cast<int*>(offsets.data_ptr());
  plan.counts = static_cast<int*>(counts.data_ptr());
  plan.row_of = static_cast<int*>(row_of.data_ptr());
  float* to_probs = static_cast<float*>(out_probs.data_ptr());
  if (ids.scalar_type() == ScalarType::Long)
    map_entries<int64_t>(ids, probs, plan, to_probs, on.stream);
  else
    map_entries<int32_t>(ids, probs, plan, to_probs, on.stream);
  move_rows(hidden, plan, out, to_probs, on.stream);
  return {out, out_probs, offsets, counts, row_of};
}

STABLE_TORCH_LIBRARY(steelyard_receive_tokens, m) {
  m.def("forward(Tensor hidden, Tensor ids, Tensor probs, int num_rows, int experts, "
        "int alignment) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_receive_tokens, CompositeExplicitAutograd, m) {
  m.impl("forward", TORCH_BOX(&receive_tokens));
}
"""

load_inline(
    name="steelyard_receive_tokens",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
receive_tokens = torch.ops.steelyard_receive_tokens.forward.default


class ModelNew(nn.Module):
    def __init__(self, experts=32, alignment=1):
        super().__init__()
        self.experts, self.alignment = experts, alignment

    def forward(self, hidden, ids, probs, num_rows):
        if hidden.stride(1) != 1:
            hidden = hidden.contiguous()
        return receive_tokens(hidden, ids, probs, num_rows, self.experts, self.alignment)
