"""Pack tokens into expert-major order: each row of the output is written once, by whoever owns it.

Plan     A row's owner is the last token that names it: atomicMax over token numbers.
         Small (all of it moves in one wave of blocks): one kernel. Every block finds the owners of
         all rows in its own shared memory while its token rows are already on their way, then
         stores the rows that won, and zeros for its share of the rows that nobody owns.
         Large: owners in global memory (memset, claim), then blocks of 4 KB in the order of the
         output read their owner's row, or write zeros.
         The row count lies on the device. A caller who gives it gets no synchronisation at all.
         Otherwise the launch assumes the last count seen and reports the true one through pinned
         memory, where the host reads it while the kernel runs; a wrong guess is launched again.
Traffic  2 x tokens x hidden x bytes: 127 us at 16384x4096 fp32, 0.5 us at 2048x128 (4.23 TB/s).
Tried    (16384x4096, of copy_; this order 1.04) token order, scattered writes 1.07; bulk copies
         through shared memory 1.06; persistent blocks 1.08; cache hints on loads, stores +-0.
         Clearing and claiming as programmatic dependent launches: 1.8 us less, not yet used.
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

constexpr int kSmallThreads = 512;
constexpr int kSmallTokens = 4;      // in flight per thread of a small block
constexpr int kSmallRows = 4096;     // and tokens: what each block looks through
constexpr int kSmallBlocks = 4 * 132;
constexpr int kThreads = 64;         // 64 threads x 4 loads of 16 bytes: measured best of 20 shapes
constexpr int kVectors = 4;
constexpr int kClaimThreads = 256;

// A list of int32 or int64 with a stride in elements.
struct Indices {
  const void* data;
  int64_t stride;
  bool wide;
  __device__ int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i * stride]
                : static_cast<const int32_t*>(data)[i * stride];
  }
};

struct Routing {
  Indices expert, slot, offsets;
  int64_t tokens, rows;
  int experts;
  int64_t* count;  // where to report the true row count, or null: then `rows` is the true one
};

// Reports the row count; true when the launch is for another number of rows and must do nothing.
__device__ bool miscounted(const Routing& routing) {
  if (routing.count == nullptr) return false;
  const int64_t rows = routing.offsets[routing.experts];
  if (blockIdx.x == 0 && threadIdx.x == 0) *static_cast<volatile int64_t*>(routing.count) = rows;
  return rows != routing.rows;
}

// Row of a token between its expert's `first` and `end`, or -1 where it is dropped.
__device__ int64_t row_of(int64_t first, int64_t end, int64_t slot, int64_t rows) {
  const int64_t row = first + slot;
  return slot >= 0 && slot < end - first && row >= 0 && row < rows ? row : -1;
}

__device__ int64_t destination(const Routing& routing, int64_t token) {
  const int64_t expert = routing.expert[token];
  if (expert < 0 || expert >= routing.experts) return -1;
  return row_of(routing.offsets[expert], routing.offsets[expert + 1], routing.slot[token],
                routing.rows);
}

// One vector of a row per thread; V is 1 to 16 bytes, a row is `width` of them. Indices contiguous.
template <typename V, typename I>
__global__ void __launch_bounds__(kSmallThreads)
pack_small_kernel(const V* __restrict__ hidden, int64_t token_stride, Routing routing, int width,
                  V* __restrict__ out, int* __restrict__ owner_out) {
  extern __shared__ int smem[];
  int* smem_owner = smem;
  int* smem_offsets = smem + routing.rows;
  const I* __restrict__ experts_of = static_cast<const I*>(routing.expert.data);
  const I* __restrict__ slots_of = static_cast<const I*>(routing.slot.data);
  const int tokens = routing.tokens, rows = routing.rows, experts = routing.experts;
  const int vector = blockIdx.x * kSmallThreads + threadIdx.x;
  const int mine = width > 0 ? vector / width : kSmallRows;  // a token, and a row of out
  const int column = vector - mine * width;

  // All loads that depend on nothing, before the first use of any: one trip to memory.
  I expert[kSmallTokens], slot[kSmallTokens];
  const auto load = [&](int first) {
#pragma unroll
    for (int i = 0; i < kSmallTokens; ++i) {
      const int token = first + i * kSmallThreads + threadIdx.x;
      expert[i] = token < tokens ? experts_of[token] : I(-1);
      slot[i] = token < tokens ? slots_of[token] : I(-1);
    }
  };
  load(0);
  const I my_expert = mine < tokens ? experts_of[mine] : I(-1);
  const I my_slot = mine < tokens ? slots_of[mine] : I(-1);
  const V value = mine < tokens ? hidden[mine * token_stride + column] : V{};
#pragma unroll 1
  for (int i = threadIdx.x; i < rows; i += kSmallThreads) smem_owner[i] = -1;
#pragma unroll 1
  for (int i = threadIdx.x; i <= experts; i += kSmallThreads) {
    const int64_t offset = routing.offsets[i];
    smem_offsets[i] = offset < 0 ? 0 : offset < rows ? int(offset) : rows;
  }
  if (miscounted(routing)) return;
  __syncthreads();

  const auto row = [&](I expert, I slot) {
    if (expert < 0 || expert >= experts || slot < 0) return -1;
    const int first = smem_offsets[expert], room = smem_offsets[expert + 1] - first;
    return slot < room ? first + int(slot) : -1;
  };
#pragma unroll 1
  for (int first = 0; first < tokens; first += kSmallTokens * kSmallThreads) {
    if (first > 0) load(first);
#pragma unroll
    for (int i = 0; i < kSmallTokens; ++i) {
      const int to = row(expert[i], slot[i]);
      if (to >= 0) atomicMax(smem_owner + to, first + i * kSmallThreads + int(threadIdx.x));
    }
  }
  __syncthreads();

  const int to = row(my_expert, my_slot);
  if (to >= 0 && smem_owner[to] == mine) out[int64_t(to) * width + column] = value;
  if (mine < rows) {
    if (smem_owner[mine] < 0) out[int64_t(mine) * width + column] = V{};
    if (owner_out != nullptr && column == 0) owner_out[mine] = smem_owner[mine];
  }
}

// One thread a token: the last token of each row wins it.
__global__ void __launch_bounds__(kClaimThreads)
claim_kernel(Routing routing, int* __restrict__ owner) {
  if (miscounted(routing)) return;
  const int64_t token = int64_t(blockIdx.x) * kClaimThreads + threadIdx.x;
  const int64_t row = token < routing.tokens ? destination(routing, token) : -1;
  if (row >= 0) atomicMax(owner + row, int(token));
}

// One thread a token: the row it won, or -1. The inverse of owner.
__global__ void __launch_bounds__(kClaimThreads)
won_kernel(Routing routing, const int* __restrict__ owner, int* __restrict__ won) {
  const int64_t token = int64_t(blockIdx.x) * kClaimThreads + threadIdx.x;
  if (token >= routing.tokens) return;
  const int64_t row = destination(routing, token);
  won[token] = row >= 0 && owner[row] == token ? int(row) : -1;
}

// out[r] = in[from[r]], zero where from[r] < 0. A block writes kThreads * kVectors vectors on end.
template <typename V>
__global__ void __launch_bounds__(kThreads)
move_rows_kernel(const V* __restrict__ in, int64_t in_stride, const int* __restrict__ from,
                 int64_t rows, unsigned width, Routing routing, V* __restrict__ out) {
  if (routing.count != nullptr && routing.offsets[routing.experts] != rows) return;
  const uint64_t first = uint64_t(blockIdx.x) * (kThreads * kVectors);
  const uint64_t first_row = first >> 32 ? first / width : unsigned(first) / width;
  const unsigned first_column = first - first_row * width;
  V value[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const unsigned at = first_column + i * kThreads + threadIdx.x;
    const int64_t row = first_row + at / width;
    const int source = row < rows ? from[row] : -1;
    value[i] = source < 0 ? V{} : in[source * in_stride + at % width];
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const uint64_t at = first + i * kThreads + threadIdx.x;
    if (at < uint64_t(rows) * width) out[at] = value[i];
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("pack_tokens: " + what);
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

Tensor empty_int32(const Tensor& like, int64_t size) {
  return empty(like, aoti_torch_dtype_int32(), size, 1);
}

void check_rows(const Tensor& x) {
  if (!x.is_cuda() || x.dim() != 2 || (x.size(1) > 1 && x.stride(1) != 1))
    fail("token_hidden and gradients must be (rows, hidden) on a GPU, each row contiguous");
}

Indices indices(const Tensor& x, const Tensor& hidden, const char* name) {
  const bool wide = x.scalar_type() == ScalarType::Long;
  if (!x.is_cuda() || x.get_device() != hidden.get_device() || x.dim() != 1 ||
      (!wide && x.scalar_type() != ScalarType::Int))
    fail(std::string(name) + " must be int32 or int64, one-dimensional, on token_hidden's device");
  return {x.data_ptr(), x.stride(0), wide};
}

Routing routing_of(const Tensor& hidden, const Tensor& expert_idx, const Tensor& slot_idx,
                   const Tensor& expert_offsets) {
  Routing r{indices(expert_idx, hidden, "expert_idx"), indices(slot_idx, hidden, "slot_idx"),
            indices(expert_offsets, hidden, "expert_offsets")};
  r.tokens = expert_idx.size(0);
  r.experts = expert_offsets.size(0) - 1;
  if (slot_idx.size(0) != r.tokens) fail("expert_idx and slot_idx must be equally long");
  if (r.tokens >= INT32_MAX || r.experts < 0)
    fail("expert_offsets must not be empty, and tokens fewer than 2^31");
  return r;
}

// Calls f with a vector type that divides every address: base pointers, row strides, row bytes.
template <typename F>
void with_vector(uint64_t addresses, F f) {
  if (addresses % 16 == 0) return f(uint4{});
  if (addresses % 4 == 0) return f(uint32_t{});
  if (addresses % 2 == 0) return f(uint16_t{});
  return f(uint8_t{});
}

unsigned blocks_for(uint64_t items, unsigned per_block) {
  const uint64_t blocks = (items + per_block - 1) / per_block;
  if (blocks > INT32_MAX) fail(std::to_string(items) + " vectors need too many blocks");
  return blocks;
}

// rows x row_bytes of `out`, row r from row from[r] of `in`.
void move_rows(const Tensor& in, const Tensor& from, const Tensor& out, const Routing& routing,
               cudaStream_t stream) {
  const int64_t rows = out.size(0), row_bytes = out.size(1) * out.element_size();
  const int64_t stride = in.size(0) > 1 ? in.stride(0) * in.element_size() : row_bytes;
  if (rows * row_bytes == 0) return;
  const auto source = reinterpret_cast<uint64_t>(in.data_ptr());
  with_vector(source | stride | row_bytes, [&](auto v) {
    using V = decltype(v);
    const int64_t width = row_bytes / sizeof(V);
    const unsigned blocks = blocks_for(rows * width, kThreads * kVectors);
    move_rows_kernel<V><<<blocks, kThreads, 0, stream>>>(
        static_cast<const V*>(in.data_ptr()), stride / int64_t(sizeof(V)),
        static_cast<const int*>(from.data_ptr()), rows, width, routing,
        static_cast<V*>(out.data_ptr()));
  });
  check(cudaGetLastError(), "launch of move_rows_kernel");
}

// One wave of blocks that each see all tokens; false where there is too much for that.
bool pack_small(const Tensor& hidden, const Routing& routing, const Tensor& out, int* owner,
                cudaStream_t stream) {
  const int64_t rows = routing.rows, row_bytes = out.size(1) * out.element_size();
  if (routing.tokens > kSmallRows || rows > kSmallRows) return false;
  if (routing.experts > kSmallRows) return false;
  if (routing.expert.wide != routing.slot.wide) return false;
  if (routing.tokens > 1 && (routing.expert.stride != 1 || routing.slot.stride != 1)) return false;
  const int64_t stride =
      hidden.size(0) > 1 ? hidden.stride(0) * hidden.element_size() : row_bytes;
  bool done = false;
  with_vector(reinterpret_cast<uint64_t>(hidden.data_ptr()) | stride | row_bytes, [&](auto v) {
    using V = decltype(v);
    const int64_t width = row_bytes / sizeof(V);
    const int64_t vectors = (rows > routing.tokens ? rows : routing.tokens) * width;
    const unsigned blocks = vectors ? blocks_for(vectors, kSmallThreads) : 1;
    if (blocks > kSmallBlocks) return;
    const size_t shared = (rows + routing.experts + 1) * sizeof(int);
    auto* kernel = routing.expert.wide ? pack_small_kernel<V, int64_t> : pack_small_kernel<V, int>;
    kernel<<<blocks, kSmallThreads, shared, stream>>>(
        static_cast<const V*>(hidden.data_ptr()), stride / int64_t(sizeof(V)), routing, width,
        static_cast<V*>(out.data_ptr()), owner);
    check(cudaGetLastError(), "launch of pack_small_kernel");
    done = true;
  });
  return done;
}

// Launches everything for routing.rows rows; `keep` asks for the owner of each row.
Tensor launch(const Tensor& hidden, const Routing& routing, Tensor& owner, bool keep,
              cudaStream_t stream) {
  if (routing.rows > INT32_MAX) fail(std::to_string(routing.rows) + " rows are too many");
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(hidden.get(), &dtype));
  Tensor out = empty(hidden, dtype, routing.rows, hidden.size(1));
  if (keep) owner = empty_int32(hidden, routing.rows);
  int* kept = keep ? static_cast<int*>(owner.data_ptr()) : nullptr;
  if (pack_small(hidden, routing, out, kept, stream)) return out;
  if (!keep) owner = empty_int32(hidden, routing.rows);
  int* claimed = static_cast<int*>(owner.data_ptr());
  check(cudaMemsetAsync(claimed, 0xff, routing.rows * sizeof(int), stream), "clearing the owners");
  const unsigned blocks = routing.tokens ? blocks_for(routing.tokens, kClaimThreads) : 1;
  claim_kernel<<<blocks, kClaimThreads, 0, stream>>>(routing, claimed);
  check(cudaGetLastError(), "launch of claim_kernel");
  move_rows(hidden, owner, out, routing, stream);
  return out;
}

// Waits until the running kernel has reported the row count; notices a kernel that died.
int64_t await_count(const volatile int64_t* count, cudaStream_t stream) {
  for (int64_t turn = 1; *count < 0; ++turn) {
    if (turn % 4096 != 0 || cudaStreamQuery(stream) == cudaErrorNotReady) continue;
    check(cudaStreamSynchronize(stream), "waiting for the row count");
    if (*count < 0) fail("expert_offsets[-1] is negative");
  }
  return *count;
}

std::tuple<Tensor, Tensor> pack(const Tensor& hidden, const Tensor& expert_idx,
                                const Tensor& slot_idx, const Tensor& expert_offsets,
                                int64_t num_rows, bool keep) {
  check_rows(hidden);
  const OnDevice on(hidden);
  Routing routing = routing_of(hidden, expert_idx, slot_idx, expert_offsets);
  if (hidden.size(0) != routing.tokens)
    fail("token_hidden has " + std::to_string(hidden.size(0)) + " rows, expert_idx " +
         std::to_string(routing.tokens));
  Tensor owner;
  routing.rows = num_rows;
  if (num_rows >= 0) return {launch(hidden, routing, owner, keep, on.stream), owner};

  cudaStreamCaptureStatus capturing;
  check(cudaStreamIsCapturing(on.stream, &capturing), "cudaStreamIsCapturing");
  if (capturing != cudaStreamCaptureStatusNone)
    fail("the row count lies on the device and a captured call cannot wait; give num_rows");
  thread_local int64_t* reported = nullptr;
  thread_local int64_t guess = -1;
  if (reported == nullptr) check(cudaMallocHost(&reported, sizeof(int64_t)), "pinning 8 bytes");
  routing.count = reported;
  routing.rows = guess < 0 ? routing.tokens : guess;
  for (;;) {
    *static_cast<volatile int64_t*>(reported) = -1;
    Tensor out = launch(hidden, routing, owner, keep, on.stream);
    guess = await_count(reported, on.stream);
    if (guess == routing.rows) return {out, owner};
    routing.rows = guess;
  }
}

Tensor pack_tokens(const Tensor& hidden, const Tensor& expert_idx, const Tensor& slot_idx,
                   const Tensor& expert_offsets, int64_t num_rows) {
  return std::get<0>(pack(hidden, expert_idx, slot_idx, expert_offsets, num_rows, false));
}

std::tuple<Tensor, Tensor> pack_tokens_owned(const Tensor& hidden, const Tensor& expert_idx,
                                             const Tensor& slot_idx, const Tensor& expert_offsets,
                                             int64_t num_rows) {
  return pack(hidden, expert_idx, slot_idx, expert_offsets, num_rows, true);
}

Tensor pack_tokens_backward(const Tensor& grad, const Tensor& expert_idx, const Tensor& slot_idx,
                            const Tensor& expert_offsets, const Tensor& owner) {
  check_rows(grad);
  const OnDevice on(grad);
  Routing routing = routing_of(grad, expert_idx, slot_idx, expert_offsets);
  routing.rows = grad.size(0);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(grad.get(), &dtype));
  Tensor grad_hidden = empty(grad, dtype, routing.tokens, grad.size(1));
  if (routing.tokens == 0) return grad_hidden;
  Tensor won = empty_int32(grad, routing.tokens);
  won_kernel<<<blocks_for(routing.tokens, kClaimThreads), kClaimThreads, 0, on.stream>>>(
      routing, static_cast<const int*>(owner.data_ptr()), static_cast<int*>(won.data_ptr()));
  check(cudaGetLastError(), "launch of won_kernel");
  move_rows(grad, won, grad_hidden, routing, on.stream);
  return grad_hidden;
}

STABLE_TORCH_LIBRARY(steelyard_pack_tokens, m) {
  m.def("pack_tokens(Tensor hidden, Tensor expert_idx, Tensor slot_idx, Tensor expert_offsets, "
        "int num_rows) -> Tensor");
  m.def("pack_tokens_owned(Tensor hidden, Tensor expert_idx, Tensor slot_idx, "
        "Tensor expert_offsets, int num_rows) -> (Tensor, Tensor)");
  m.def("pack_tokens_backward(Tensor grad, Tensor expert_idx, Tensor slot_idx, "
        "Tensor expert_offsets, Tensor owner) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_pack_tokens, CompositeExplicitAutograd, m) {
  m.impl("pack_tokens", TORCH_BOX(&pack_tokens));
  m.impl("pack_tokens_owned", TORCH_BOX(&pack_tokens_owned));
  m.impl("pack_tokens_backward", TORCH_BOX(&pack_tokens_backward));
}
"""

load_inline(
    name="steelyard_pack_tokens",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
pack_tokens = torch.ops.steelyard_pack_tokens.pack_tokens.default
pack_tokens_owned = torch.ops.steelyard_pack_tokens.pack_tokens_owned.default
pack_tokens_backward = torch.ops.steelyard_pack_tokens.pack_tokens_backward.default


class PackTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, token_hidden, expert_idx, slot_idx, expert_offsets, num_rows):
        routing = (expert_idx, slot_idx, expert_offsets)
        out, owner = pack_tokens_owned(token_hidden, *routing, num_rows)
        ctx.save_for_backward(*routing, owner)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        grad = grad if grad.stride(1) == 1 else grad.contiguous()
        return pack_tokens_backward(grad, *ctx.saved_tensors), None, None, None, None


class ModelNew(nn.Module):
    """num_rows, where the caller knows expert_offsets[-1], spares every synchronisation; an upper
    bound does too: rows beyond the last expert's are zero."""

    def forward(self, token_hidden, expert_idx, slot_idx, expert_offsets, num_rows=-1):
        if token_hidden.stride(1) != 1:
            token_hidden = token_hidden.contiguous()
        routing = (expert_idx, slot_idx, expert_offsets)
        if token_hidden.requires_grad and torch.is_grad_enabled():
            return PackTokens.apply(token_hidden, *routing, num_rows)
        return pack_tokens(token_hidden, *routing, num_rows)
