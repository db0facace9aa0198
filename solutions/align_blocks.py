"""Top-k ids to blocks of one expert each: sorted entries with padding, the expert of each block.

Plan     align_blocks' counting sort, in one launch: warps count their experts in shared memory,
         blocks publish their counts, and after the grid's one barrier every block adds up the
         others', scans the aligned sizes and places its entries by rank (match) on top of the
         warp's running place. The order of entries is kept. Padding, block experts and unused rows
         are spread over all blocks. Few entries: one block of threads, no barrier.
Traffic  entries x index + 4 x rows x (1 + 1 / block) bytes: 4096 x 8 of 256, int32, blocks of 64:
         0.33 MB, 0.08 us at 4.23 TB/s; bound by latency. Not measured yet.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr unsigned kFullMask = 0xffffffff;
constexpr int kMaxThreads = 512;
constexpr int kKept = 4;                // entries of a lane in registers: a strip is 128 of a warp
constexpr int kMaxExperts = 4096;
constexpr int kWarpCounts = 32 * 1024;  // counts of a block's warps: 128 KB of shared memory
constexpr int kBlockCounts = 1 << 21;   // blocks^2 x experts: 8 MB that all blocks read from L2
constexpr int kDefaultShared = 48 << 10;

// A matrix with any strides, in elements.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;
  __device__ T operator()(int64_t row, int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
};

struct Shape {
  int entries, topk, experts, alignment;
  const int* expert_map;  // (ids,): the local expert of each id; null: itself
  int ids;
  int64_t rows;  // of the sorted entries
  int64_t run;   // entries of a warp, a multiple of 32
};

struct Outputs {
  int* entries;
  int* block_expert;
  int* used;
};

__device__ int whole_blocks(int count, const Shape& shape) {
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
align_blocks_kernel(Matrix<I> indices, Shape shape, int* __restrict__ block_counts, Outputs out) {
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
    for (int i = 0; i < kKept; ++i) {
      int e = id[i] >= 0 && id[i] < shape.ids ? int(id[i]) : -1;
      if (e >= 0 && shape.expert_map != nullptr) e = shape.expert_map[e];
      expert[i] = e >= 0 && e < experts ? e : -1;
    }
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
  exclusive_scan([&](int e) { return whole_blocks(smem_total[e], shape); }, experts, smem_offset);
#pragma unroll 1
  for (int e = threadIdx.x; e <= experts; e += threads) {
    if (blockIdx.x == 0 && e == experts) *out.used = smem_offset[e];
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
      if (row >= 0) out.entries[row] = int(at);
    }
  }
#pragma unroll 1
  for (int e = blockIdx.x * warps + warp; e < experts; e += blocks * warps) {
    for (int row = smem_offset[e] + smem_total[e] + lane; row < smem_offset[e + 1]; row += 32)
      out.entries[row] = shape.entries;
    const int end = smem_offset[e + 1] / shape.alignment;
    for (int b = smem_offset[e] / shape.alignment + lane; b < end; b += 32) out.block_expert[b] = e;
  }
#pragma unroll 1
  for (int64_t row = smem_offset[experts] + int64_t(blockIdx.x) * threads + threadIdx.x;
       row < shape.rows; row += int64_t(blocks) * threads) {
    out.entries[row] = shape.entries;
    if (row % shape.alignment == 0) out.block_expert[row / shape.alignment] = -1;
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("align_blocks: " + what);
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

int* ints(const Tensor& x) { return static_cast<int*>(x.data_ptr()); }

Shape shape_of(const Tensor& indices, const std::optional<Tensor>& expert_map, int64_t experts,
               int64_t block) {
  if (!indices.is_cuda() || indices.dim() != 2) fail("indices must be (tokens, k) on a GPU");
  if (experts < 1 || experts > kMaxExperts)
    fail("experts must be 1 to 4096, not " + std::to_string(experts));
  if (block < 1 || block > 1 << 16)
    fail("block must be 1 to 65536, not " + std::to_string(block));
  const int64_t entries = indices.numel(), filled = entries < experts ? entries : experts;
  const int64_t rows = (entries + filled * (block - 1)) / block * block;
  if (rows > INT32_MAX) fail(std::to_string(rows) + " rows are too many (int32)");
  Shape shape{int(entries), int(indices.size(1)), int(experts), int(block), nullptr, int(experts),
              rows, 0};
  if (!expert_map.has_value()) return shape;
  const Tensor& map = *expert_map;
  if (!map.is_cuda() || map.get_device() != indices.get_device() || map.dim() != 1 ||
      map.scalar_type() != ScalarType::Int || !map.is_contiguous() || map.size(0) > INT32_MAX)
    fail("expert_map must be int32, (ids,), contiguous, on the indices' device");
  shape.expert_map = static_cast<const int*>(map.data_ptr());
  shape.ids = int(map.size(0));
  return shape;
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

std::tuple<Tensor, Tensor, Tensor> align_blocks(const Tensor& indices,
                                                std::optional<Tensor> expert_map,
                                                int64_t experts, int64_t block) {
  Shape shape = shape_of(indices, expert_map, experts, block);
  const bool wide = indices.scalar_type() == ScalarType::Long;
  if (!wide && indices.scalar_type() != ScalarType::Int) fail("indices must be int32 or int64");
  const OnDevice on(indices);
  int warps = kMaxThreads / 32;
  while (warps * shape.experts > kWarpCounts) warps /= 2;
  const int threads = warps * 32, blocks = blocks_for(shape, threads, on.device);
  const int64_t all = int64_t(blocks) * threads;
  shape.run = (shape.entries + all - 1) / all * 32;

  const int32_t int32 = aoti_torch_dtype_int32();
  Tensor entries = empty_list(indices, int32, shape.rows);
  Tensor block_expert = empty_list(indices, int32, shape.rows / block);
  Tensor used = empty_list(indices, int32, 1);
  Tensor block_counts = empty_list(indices, int32, blocks > 1 ? blocks * experts : 0);
  Outputs out{ints(entries), ints(block_expert), ints(used)};
  const size_t shared = sizeof(int) * ((warps + 3) * experts + 1);
  const auto launch = [&](auto i) {
    using I = decltype(i);
    auto* kernel = align_blocks_kernel<I>;
    if (shared > kDefaultShared)
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
            "asking for shared memory");
    Matrix<I> ids = matrix<I>(indices);
    int* between = ints(block_counts);
    if (blocks == 1) {
      kernel<<<1, threads, shared, on.stream>>>(ids, shape, between, out);
      return check(cudaGetLastError(), "launch of align_blocks_kernel");
    }
    void* arguments[] = {&ids, &shape, &between, &out};
    check(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(threads), arguments, shared,
                                      on.stream),
          "launch of align_blocks_kernel");
  };
  wide ? launch(int64_t{}) : launch(int32_t{});
  return {entries, block_expert, used};
}

STABLE_TORCH_LIBRARY(steelyard_align_blocks, m) {
  m.def("align_blocks(Tensor indices, Tensor? expert_map, int experts, int block) "
        "-> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_align_blocks, CompositeExplicitAutograd, m) {
  m.impl("align_blocks", TORCH_BOX(&align_blocks));
}
"""

load_inline(
    name="steelyard_align_blocks",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
align_blocks = torch.ops.steelyard_align_blocks.align_blocks.default


class ModelNew(nn.Module):
    def __init__(self, experts=256, block=64):
        super().__init__()
        self.experts, self.block = experts, block

    def forward(self, indices, expert_map=None):
        return align_blocks(indices, expert_map, self.experts, self.block)
