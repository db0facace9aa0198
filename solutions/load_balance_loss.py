"""The auxiliary and the z-loss of a router, and their backward.

Plan     counts are given, so aux is a sum over rows of sum_e(p[t, e] * counts[e]): one pass, and
         no sums over columns. One warp a row, a lane owns neighbouring experts in registers; the
         warps of a fixed number of blocks stride over the rows, a second launch of one block adds
         the blocks' sums in a fixed order, so results repeat bit by bit.
         Backward: one warp a row reads the logits again and writes the gradient; the two losses'
         gradients and n are read on the device.
Traffic  Forward one read of the logits: 4096 x 256 fp32: 4.2 MB, 1.0 us at 4.23 TB/s. Backward a
         read and a write, 2.0 us. At these sizes bound by two launches. Not measured yet.
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
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kWarps = 8;
constexpr int kMaxBlocks = 2 * 132;
constexpr int kSumThreads = 32;
constexpr int kMaxExperts = 1024;
constexpr int kKeptColumns = 16;

__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float x, float& to) { to = x; }
__device__ void from_float(float x, __half& to) { to = __float2half_rn(x); }
__device__ void from_float(float x, __nv_bfloat16& to) { to = __float2bfloat16_rn(x); }

__device__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kFullMask, x, step);
  return x;
}

__device__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kFullMask, x, step));
  return x;
}

// A matrix with any strides, in elements.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row_stride, column_stride;
  __device__ T operator()(int64_t row, int64_t column) const {
    return data[row * row_stride + column * column_stride];
  }
};

template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};

// What is read beside the logits. `vector`: a lane's columns can be read and written whole.
struct Loss {
  int64_t tokens;
  int experts;
  float topk;
  bool sigmoid, vector, wide;
  const void* counts;
  int64_t counts_stride;
  const bool* valid;  // or null
  int64_t valid_stride;
  // volatile: read ahead of the loop, a wide row's counts would take too many registers.
  __device__ float count(int e) const {
    return wide ? float(static_cast<const volatile int64_t*>(counts)[e * counts_stride])
                : float(static_cast<const volatile int32_t*>(counts)[e * counts_stride]);
  }
  // Counts of a lane's columns: kept where registers allow it, else read again when needed.
  template <int N>
  struct Kept {
    const Loss& loss;
    int column;
    float at[N <= kKeptColumns ? N : 1];
    __device__ Kept(const Loss& loss, int column) : loss(loss), column(column) {
      if constexpr (N <= kKeptColumns) {
#pragma unroll
        for (int j = 0; j < N; ++j) at[j] = read(j);
      }
    }
    __device__ float read(int j) const {
      return column + j < loss.experts ? loss.count(column + j) : 0.f;
    }
    __device__ float operator[](int j) const {
      if constexpr (N <= kKeptColumns) return at[j];
      return read(j);
    }
  };
  __device__ bool counted(int64_t row) const {
    return valid == nullptr || valid[row * valid_stride];
  }
};

template <typename T, int N>
__device__ void load_logits(const Matrix<T>& logits, int64_t row, int column, const Loss& loss,
                            float (&x)[N]) {
  Pack<T, N> raw;
  if (loss.vector) {
    if (column < loss.experts)
      raw = *reinterpret_cast<const Pack<T, N>*>(logits.data + row * logits.row_stride + column);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (column + j < loss.experts) raw.at[j] = logits(row, column + j);
  }
#pragma unroll
  for (int j = 0; j < N; ++j) x[j] = column + j < loss.experts ? to_float(raw.at[j]) : -INFINITY;
}

__device__ float sigmoid(float x) { return 1.f / (1.f + __expf(-x)); }

// Of a row: the highest logit, the inverse of the sum of exponentials, logsumexp; the inverse of
// the sum that normalises p, and sum_e(p * count).
struct Row {
  float top, inverse, lse, scale, dot;
};

template <int N>
__device__ Row row_of(const float (&x)[N], const Loss::Kept<N>& count, bool by_sigmoid) {
  Row row;
  float top = -INFINITY, power_sum = 0.f, power_dot = 0.f, score_sum = 0.f, score_dot = 0.f;
#pragma unroll
  for (int j = 0; j < N; ++j) top = fmaxf(top, x[j]);
  row.top = warp_max(top);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float power = __expf(x[j] - row.top);
    power_sum += power;
    power_dot += power * count[j];
    if (by_sigmoid) {
      const float score = sigmoid(x[j]);
      score_sum += score;
      score_dot += score * count[j];
    }
  }
  const float total = warp_sum(power_sum);
  row.inverse = 1.f / total;
  row.lse = row.top + logf(total);
  row.scale = by_sigmoid ? 1.f / (warp_sum(score_sum) + 1e-20f) : row.inverse;
  row.dot = warp_sum(by_sigmoid ? score_dot : power_dot) * row.scale;
  return row;
}

// sums (3, blocks): of the blocks' rows the dots, the squares of logsumexp, and how many there are.
template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps, 1)  // without the 1, ptxas spills to save registers
row_losses_kernel(Matrix<T> logits, Loss loss, float* __restrict__ sums) {
  __shared__ float smem_sum[3][kWarps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane * N;
  const Loss::Kept<N> count(loss, column);
  float dots = 0.f, squares = 0.f, rows = 0.f;
  for (int64_t at = int64_t(blockIdx.x) * kWarps + warp; at < loss.tokens;
       at += int64_t(gridDim.x) * kWarps) {
    if (!loss.counted(at)) continue;
    float x[N];
    load_logits(logits, at, column, loss, x);
    const Row row = row_of(x, count, loss.sigmoid);
    dots += row.dot;
    squares += row.lse * row.lse;
    rows += 1.f;
  }
  if (lane == 0) {
    smem_sum[0][warp] = dots;
    smem_sum[1][warp] = squares;
    smem_sum[2][warp] = rows;
  }
  __syncthreads();
  if (threadIdx.x >= 3) return;
  float sum = 0.f;
  for (int w = 0; w < kWarps; ++w) sum += smem_sum[threadIdx.x][w];
  sums[threadIdx.x * gridDim.x + blockIdx.x] = sum;
}

// One warp adds the blocks' sums.
__global__ void __launch_bounds__(kSumThreads)
load_balance_loss_kernel(const float* __restrict__ sums, int blocks, float factor,
                         float* __restrict__ aux, float* __restrict__ z, float* __restrict__ n) {
  float total[3] = {0.f, 0.f, 0.f};
  for (int i = threadIdx.x; i < blocks; i += kSumThreads) {
#pragma unroll
    for (int what = 0; what < 3; ++what) total[what] += sums[what * blocks + i];
  }
#pragma unroll
  for (int what = 0; what < 3; ++what) total[what] = warp_sum(total[what]);
  if (threadIdx.x > 0) return;
  const float rows = fmaxf(total[2], 1.f);
  *aux = total[0] * factor / rows / rows;
  *z = total[1] / rows;
  *n = rows;
}

template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps)
load_balance_loss_backward_kernel(Matrix<T> logits, Loss loss, const float* __restrict__ grad_aux,
                                  const float* __restrict__ grad_z, const float* __restrict__ n,
                                  T* __restrict__ grad_logits) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane * N;
  const int64_t at = int64_t(blockIdx.x) * kWarps + warp;
  if (at >= loss.tokens) return;
  Pack<T, N> grad{};
  if (loss.counted(at)) {
    float x[N];
    load_logits(logits, at, column, loss, x);
    const Loss::Kept<N> count(loss, column);
    const Row row = row_of(x, count, loss.sigmoid);
    const float by_aux = grad_aux ? *grad_aux * (loss.experts / loss.topk) / *n / *n : 0.f;
    const float by_z = grad_z ? *grad_z * 2.f * row.lse / *n : 0.f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float p = __expf(x[j] - row.top) * row.inverse;
      float slope = p;
      if (loss.sigmoid) {
        const float score = sigmoid(x[j]);
        slope = score * (1.f - score) * row.scale;
      }
      from_float(by_aux * slope * (count[j] - row.dot) + by_z * p, grad.at[j]);
    }
  }
  T* out = grad_logits + at * loss.experts;
  if (loss.vector) {
    if (column < loss.experts) *reinterpret_cast<Pack<T, N>*>(out + column) = grad;
    return;
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (column + j < loss.experts) out[column + j] = grad.at[j];
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("load_balance_loss: " + what);
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

Tensor empty_scalar(const Tensor& like) {
  int32_t type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &type));
  const int64_t none = 0;
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(0, &none, &none, aoti_torch_dtype_float32(), type,
                                                  like.get_device(), &handle));
  return Tensor(handle);
}

template <typename T>
Matrix<T> matrix(const Tensor& x) {
  return {static_cast<const T*>(x.data_ptr()), x.stride(0), x.stride(1)};
}

// Calls f with the number of columns of a lane, a power of two.
template <int N, typename F>
void with_columns(int experts, F f) {
  if constexpr (N < kMaxExperts / 32) {
    if (experts > 32 * N) return with_columns<2 * N>(experts, f);
  }
  f(std::integral_constant<int, N>{});
}

// Calls f with a value of the logits' type and the number of columns of a lane.
template <typename F>
void with_types(const Tensor& logits, F f) {
  with_columns<1>(logits.size(1), [&](auto n) {
    switch (logits.scalar_type()) {
      case ScalarType::Float: return f(float{}, n);
      case ScalarType::Half: return f(__half{}, n);
      case ScalarType::BFloat16: return f(__nv_bfloat16{}, n);
      default: fail("logits must be fp32, fp16 or bf16");
    }
  });
}

// Whether a lane's N columns lie in one aligned piece of every row of logits and of the results.
template <typename T, int N>
bool whole_columns(const Tensor& logits) {
  const uint64_t step = logits.size(0) > 1 ? logits.stride(0) * sizeof(T) : 0;
  const uint64_t addresses = reinterpret_cast<uint64_t>(logits.data_ptr()) | step;
  return logits.stride(1) == 1 && logits.size(1) % N == 0 &&
         addresses % alignof(Pack<T, N>) == 0;
}

Loss loss_of(const Tensor& logits, const Tensor& counts, const std::optional<Tensor>& valid,
             int64_t topk, bool sigmoid) {
  if (!logits.is_cuda() || logits.dim() != 2) fail("logits must be (tokens, experts) on a GPU");
  const int64_t experts = logits.size(1);
  if (experts < 1 || experts > kMaxExperts)
    fail("experts must be 1 to 1024, not " + std::to_string(experts));
  const bool wide = counts.scalar_type() == ScalarType::Long;
  if (counts.get_device() != logits.get_device() || counts.dim() != 1 ||
      counts.size(0) != experts || (!wide && counts.scalar_type() != ScalarType::Int))
    fail("counts must be (experts,), int32 or int64, on the logits' device");
  if (valid && (valid->get_device() != logits.get_device() || valid->dim() != 1 ||
                valid->size(0) != logits.size(0) || valid->scalar_type() != ScalarType::Bool))
    fail("valid must be (tokens,), bool, on the logits' device");
  if (topk < 1) fail("topk must be 1 or more, not " + std::to_string(topk));
  return {logits.size(0), int(experts), float(topk), sigmoid, false, wide, counts.data_ptr(),
          counts.stride(0), valid ? static_cast<const bool*>(valid->data_ptr()) : nullptr,
          valid ? valid->stride(0) : 0};
}

std::tuple<Tensor, Tensor, Tensor> load_balance_loss(const Tensor& logits, const Tensor& counts,
                                                     std::optional<Tensor> valid, int64_t topk,
                                                     bool sigmoid) {
  Loss loss = loss_of(logits, counts, valid, topk, sigmoid);
  const OnDevice on(logits);
  Tensor aux = empty_scalar(logits), z = empty_scalar(logits), n = empty_scalar(logits);
  const int64_t wanted = (loss.tokens + kWarps - 1) / kWarps;
  const int blocks = wanted < kMaxBlocks ? int(wanted) : kMaxBlocks;
  Tensor sums = empty(logits, aoti_torch_dtype_float32(), 3, blocks);
  with_types(logits, [&](auto t, auto width) {
    using T = decltype(t);
    constexpr int N = decltype(width)::value;
    if (blocks == 0) return;
    loss.vector = whole_columns<T, N>(logits);
    row_losses_kernel<T, N><<<blocks, 32 * kWarps, 0, on.stream>>>(
        matrix<T>(logits), loss, static_cast<float*>(sums.data_ptr()));
  });
  check(cudaGetLastError(), "launch of row_losses_kernel");
  load_balance_loss_kernel<<<1, kSumThreads, 0, on.stream>>>(
      static_cast<const float*>(sums.data_ptr()), blocks, loss.experts / loss.topk,
      static_cast<float*>(aux.data_ptr()), static_cast<float*>(z.data_ptr()),
      static_cast<float*>(n.data_ptr()));
  check(cudaGetLastError(), "launch of load_balance_loss_kernel");
  return {aux, z, n};
}

const float* scalar(const std::optional<Tensor>& x) {
  return x ? static_cast<const float*>(x->data_ptr()) : nullptr;
}

Tensor load_balance_loss_backward(std::optional<Tensor> grad_aux, std::optional<Tensor> grad_z,
                                  const Tensor& n, const Tensor& logits, const Tensor& counts,
                                  std::optional<Tensor> valid, int64_t topk, bool sigmoid) {
  Loss loss = loss_of(logits, counts, valid, topk, sigmoid);
  const OnDevice on(logits);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(logits.get(), &dtype));
  Tensor grad_logits = empty(logits, dtype, loss.tokens, loss.experts);
  const int64_t blocks = (loss.tokens + kWarps - 1) / kWarps;
  if (blocks > INT32_MAX) fail(std::to_string(loss.tokens) + " tokens are too many");
  with_types(logits, [&](auto t, auto width) {
    using T = decltype(t);
    constexpr int N = decltype(width)::value;
    if (blocks == 0) return;
    loss.vector = whole_columns<T, N>(logits);
    load_balance_loss_backward_kernel<T, N><<<blocks, 32 * kWarps, 0, on.stream>>>(
        matrix<T>(logits), loss, scalar(grad_aux), scalar(grad_z),
        static_cast<const float*>(n.data_ptr()), static_cast<T*>(grad_logits.data_ptr()));
  });
  check(cudaGetLastError(), "launch of load_balance_loss_backward_kernel");
  return grad_logits;
}

STABLE_TORCH_LIBRARY(steelyard_load_balance_loss, m) {
  m.def("forward(Tensor logits, Tensor counts, Tensor? valid, int topk, bool sigmoid) "
        "-> (Tensor, Tensor, Tensor)");
  m.def("backward(Tensor? grad_aux, Tensor? grad_z, Tensor n, Tensor logits, Tensor counts, "
        "Tensor? valid, int topk, bool sigmoid) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_load_balance_loss, CompositeExplicitAutograd, m) {
  m.impl("forward", TORCH_BOX(&load_balance_loss));
  m.impl("backward", TORCH_BOX(&load_balance_loss_backward));
}
"""

load_inline(
    name="steelyard_load_balance_loss",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
load_balance_loss = torch.ops.steelyard_load_balance_loss.forward.default
load_balance_loss_backward = torch.ops.steelyard_load_balance_loss.backward.default


class LoadBalanceLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, counts, valid, topk, sigmoid):
        aux, z, n = load_balance_loss(logits, counts, valid, topk, sigmoid)
        ctx.save_for_backward(n, logits, counts, valid)
        ctx.rule = (topk, sigmoid)
        ctx.set_materialize_grads(False)  # a loss that is not used adds nothing
        return aux, z

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_aux, grad_z):
        grad = load_balance_loss_backward(grad_aux, grad_z, *ctx.saved_tensors, *ctx.rule)
        return grad, None, None, None, None


class ModelNew(nn.Module):
    def __init__(self, topk=8, score="softmax"):
        super().__init__()
        self.topk, self.sigmoid = topk, score == "sigmoid"

    def forward(self, logits, counts, valid=None):
        if logits.requires_grad and torch.is_grad_enabled():
            return LoadBalanceLoss.apply(logits, counts, valid, self.topk, self.sigmoid)
        return load_balance_loss(logits, counts, valid, self.topk, self.sigmoid)[:2]
