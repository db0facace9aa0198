"""Pack tokens into expert-major order: out[offsets[expert[t]] + slot[t]] = hidden[t].

What     Rows no token fills are zero. A token whose expert or slot is out of range is dropped.
         No two tokens may name one row.
Plan     One launch. Blocks 0 .. zero_blocks-1 each own a range of output rows: they scan the
         indices, mark the filled rows in shared memory and clear the others. Every other block
         copies 64 threads x 4 vectors: a thread loads its vectors of hidden first, since their
         address needs no index, then finds the row and stores. So no row is written twice.
Rows     Callers who know the row count pass num_rows: no synchronisation, graph-capturable.
         Without it the launch does not wait for the count: `out` gets the rows of the last call
         (at least `tokens`), the first block writes offsets[-1] to pinned memory as it starts,
         and the host, which waits for that one word, returns out[:count] or, if `out` was too
         small, launches once more.
Traffic  (kept + rows) * hidden * element + 2 * tokens * index bytes. At 4.23 TB/s, measured copy:
         16384x4096 fp32 127.0 us, 32768x7168 fp32 444.5 us, bf16 222.2 us, 2048x128 0.5 us.
Tried    Streaming hints on loads and stores: +6 %. Bulk copies through shared memory, 4 to 8
         stages of 2 to 16 KB: +3 %. One 256-thread block a row: +6 %. A persistent grid: +13 %.
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA_SOURCE = r"""
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

constexpr int kThreads = 64;
constexpr int kVectors = 4;      // loads in flight per thread
constexpr int kZeroRows = 4096;  // rows one zeroing block owns; one byte of shared memory each

struct Tokens {
  const char* hidden;
  int64_t stride;  // bytes from token to token
  const void* expert;
  const void* slot;
  const void* offsets;
  int64_t tokens;
  int experts;
};

struct Rows {
  char* out;
  int64_t rows;
  int vectors;  // vectors per row
};

// Row of token t, or -1 where it is dropped.
template <typename Index>
__device__ int64_t row_of(const Tokens& in, int64_t rows, int64_t t) {
  const int64_t expert = static_cast<const Index*>(in.expert)[t];
  const int64_t slot = static_cast<const Index*>(in.slot)[t];
  if (expert < 0 || expert >= in.experts || slot < 0) return -1;
  const Index* offsets = static_cast<const Index*>(in.offsets);
  const int64_t row = offsets[expert] + slot;
  return row < offsets[expert + 1] && row < rows ? row : -1;
}

// Block b owns rows [b * kZeroRows, ...): marks those a token fills, clears the others.
template <typename Vector, typename Index>
__device__ void zero_unfilled(const Tokens& in, const Rows& to, int64_t count) {
  __shared__ uint8_t smem_filled[kZeroRows];
  const int64_t first = int64_t(blockIdx.x) * kZeroRows;
  const int64_t rows = min(to.rows, count);
  const int owned = int(max(int64_t(0), min(int64_t(kZeroRows), rows - first)));
  for (int i = threadIdx.x; i < owned; i += kThreads) smem_filled[i] = 0;
  __syncthreads();
  for (int64_t t = threadIdx.x; t < in.tokens; t += kThreads) {
    const int64_t mine = row_of<Index>(in, to.rows, t) - first;
    if (mine >= 0 && mine < owned) smem_filled[mine] = 1;
  }
  __syncthreads();
  for (int i = 0; i < owned; ++i) {
    if (smem_filled[i]) continue;
    Vector* row = reinterpret_cast<Vector*>(to.out) + (first + i) * to.vectors;
    for (int v = threadIdx.x; v < to.vectors; v += kThreads) row[v] = Vector{};
  }
}

template <typename Vector, typename Index, typename Flat>
__global__ void __launch_bounds__(kThreads)
    pack_tokens_kernel(Tokens in, Rows to, int zero_blocks, volatile int64_t* published,
                       int64_t ticket) {
  if (int(blockIdx.x) < zero_blocks) {
    const int64_t count = static_cast<const Index*>(in.offsets)[in.experts];
    if (published != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
      published[0] = count;
      __threadfence_system();  // the host may read the count once it sees the ticket
      published[1] = ticket;
    }
    zero_unfilled<Vector, Index>(in, to, count);
    return;
  }
  // Vectors of all tokens in one line; thread i of block b owns b * span + i, step kThreads.
  const Flat total = Flat(in.tokens) * Flat(to.vectors);
  const Flat begin = Flat(blockIdx.x - zero_blocks) * Flat(kThreads * kVectors) + threadIdx.x;
  Vector value[kVectors];
  Flat token[kVectors], place[kVectors];
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    const Flat i = begin + u * kThreads;
    token[u] = i / Flat(to.vectors);
    place[u] = i - token[u] * Flat(to.vectors);
    if (i < total) {
      value[u] = __ldg(reinterpret_cast<const Vector*>(in.hidden + int64_t(token[u]) * in.stride) +
                       place[u]);
    }
  }
#pragma unroll
  for (int u = 0; u < kVectors; ++u) {
    if (begin + u * kThreads >= total) continue;
    const int64_t row = row_of<Index>(in, to.rows, int64_t(token[u]));
    Vector* out = reinterpret_cast<Vector*>(to.out) + int64_t(place[u]);
    if (row >= 0) out[row * to.vectors] = value[u];
  }
}

static void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("pack_tokens: ") + what + ": " +
                             cudaGetErrorString(error));
}

template <typename Vector, typename Index>
static void launch(const Tokens& in, const Rows& to, int64_t* published, int64_t ticket,
                   cudaStream_t stream) {
  const int zero_blocks = int((to.rows + kZeroRows - 1) / kZeroRows) + (to.rows == 0);
  const int64_t span = kThreads * kVectors;
  const int64_t total = in.tokens * to.vectors;
  const int64_t blocks = zero_blocks + (total + span - 1) / span;
  if (blocks > INT32_MAX)
    throw std::runtime_error("pack_tokens: more than 2^31 blocks of vectors; split the tokens");
  if (total + span < int64_t(UINT32_MAX))
    pack_tokens_kernel<Vector, Index, uint32_t>
        <<<unsigned(blocks), kThreads, 0, stream>>>(in, to, zero_blocks, published, ticket);
  else
    pack_tokens_kernel<Vector, Index, uint64_t>
        <<<unsigned(blocks), kThreads, 0, stream>>>(in, to, zero_blocks, published, ticket);
  check(cudaGetLastError(), "launch");
}

template <typename Index>
static void launch_widest(const Tokens& in, Rows to, int64_t row_bytes, int64_t* published,
                          int64_t ticket, cudaStream_t stream) {
  const uint64_t bits =
      uint64_t(in.hidden) | uint64_t(in.stride) | uint64_t(to.out) | uint64_t(row_bytes);
  const int width = bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : bits % 2 ? 1 : 2;
  to.vectors = int(row_bytes / width);
  switch (width) {
    case 16: return launch<uint4, Index>(in, to, published, ticket, stream);
    case 8: return launch<uint2, Index>(in, to, published, ticket, stream);
    case 4: return launch<uint32_t, Index>(in, to, published, ticket, stream);
    case 2: return launch<uint16_t, Index>(in, to, published, ticket, stream);
    default: return launch<uint8_t, Index>(in, to, published, ticket, stream);
  }
}

// The word the device publishes the row count through, in pinned memory; one per host thread.
static int64_t* mailbox() {
  thread_local int64_t* words = [] {
    void* made = nullptr;
    check(cudaHostAlloc(&made, 2 * sizeof(int64_t), cudaHostAllocPortable | cudaHostAllocMapped),
          "cudaHostAlloc");
    static_cast<volatile int64_t*>(made)[1] = 0;
    return static_cast<int64_t*>(made);
  }();
  return words;
}

// Copies the tokens and returns the count offsets[experts], or -1 where wait is false.
// hidden, out: (tokens, row_bytes) with the given stride, (rows, row_bytes) contiguous.
int64_t pack_tokens(uintptr_t hidden, int64_t stride, uintptr_t expert, uintptr_t slot,
                    uintptr_t offsets, int64_t tokens, int64_t experts, bool wide_index,
                    int64_t row_bytes, uintptr_t out, int64_t rows, bool wait, int device,
                    uintptr_t stream_handle) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  if (current != device) check(cudaSetDevice(device), "cudaSetDevice");
  const auto stream = reinterpret_cast<cudaStream_t>(stream_handle);
  const Tokens in{reinterpret_cast<const char*>(hidden), stride,
                  reinterpret_cast<const void*>(expert), reinterpret_cast<const void*>(slot),
                  reinterpret_cast<const void*>(offsets), tokens, int(experts)};
  const Rows to{reinterpret_cast<char*>(out), rows, 0};
  int64_t* published = wait ? mailbox() : nullptr;
  thread_local int64_t ticket = 0;
  ticket += wait;
  if (wide_index)
    launch_widest<int64_t>(in, to, row_bytes, published, ticket, stream);
  else
    launch_widest<int32_t>(in, to, row_bytes, published, ticket, stream);
  int64_t count = -1;
  if (wait) {
    const volatile int64_t* words = published;
    for (int64_t spins = 1; words[1] != ticket; ++spins)
      if (spins % (1 << 20) == 0 && cudaStreamQuery(stream) != cudaErrorNotReady &&
          words[1] != ticket)
        check(cudaStreamSynchronize(stream), "reading the row count");
    std::atomic_thread_fence(std::memory_order_acquire);
    count = words[0];
  }
  if (current != device) check(cudaSetDevice(current), "cudaSetDevice");
  return count;
}
"""

CPP_SOURCE = r"""
#include <pybind11/pybind11.h>

int64_t pack_tokens(uintptr_t hidden, int64_t stride, uintptr_t expert, uintptr_t slot,
                    uintptr_t offsets, int64_t tokens, int64_t experts, bool wide_index,
                    int64_t row_bytes, uintptr_t out, int64_t rows, bool wait, int device,
                    uintptr_t stream);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("pack_tokens", &pack_tokens); }
"""

_ext = load_inline(
    name="steelyard_pack_tokens",
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=None,
    extra_cuda_cflags=["-O3"],
    with_cuda=True,
    no_implicit_headers=True,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._rows = 0  # of the last call: where the next allocation starts

    def forward(self, token_hidden, expert_idx, slot_idx, expert_offsets, num_rows=None):
        """num_rows: expert_offsets[-1], if the caller knows it; then nothing is waited for."""
        tokens, hidden = token_hidden.shape
        if token_hidden.stride(1) != 1 and hidden > 1:
            token_hidden = token_hidden.contiguous()
        kind = expert_offsets.dtype
        indices = [expert_idx, slot_idx, expert_offsets]
        if not (expert_idx.dtype == slot_idx.dtype == kind and kind in (torch.int32, torch.int64)):
            raise TypeError("pack_tokens: the three index tensors must all be int32 or all int64")
        if not (len(expert_idx) == len(slot_idx) == tokens):
            raise ValueError("pack_tokens: expert_idx and slot_idx must have one entry per token")
        expert, slot, offsets = (t if t.is_contiguous() else t.contiguous() for t in indices)
        device = token_hidden.get_device()
        size = token_hidden.element_size()
        stream = torch.cuda.current_stream(device).cuda_stream
        rows = max(self._rows, tokens) if num_rows is None else num_rows
        while True:
            out = token_hidden.new_empty(rows, hidden)
            count = _ext.pack_tokens(
                token_hidden.data_ptr(), token_hidden.stride(0) * size, expert.data_ptr(),
                slot.data_ptr(), offsets.data_ptr(), tokens, len(offsets) - 1,
                kind is torch.int64, hidden * size, out.data_ptr(), rows, num_rows is None,
                device, stream,
            )  # fmt: skip
            if num_rows is not None:
                return out
            self._rows = count
            if count <= rows:
                return out[:count] if count < rows else out
            rows = count
