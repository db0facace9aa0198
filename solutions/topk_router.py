"""Router of a mixture of experts: logits to the chosen experts and their weights, and backward.

Plan     One warp a token. A lane owns neighbouring experts in registers, as integers that
         order as the values do. Groups: the values pass through shared memory once, each group is
         ranked by a few lanes. Then topk rounds: the warp's highest (one reduction), won by the
         lowest lane that holds it, which takes it out and looks for its next. The winners'
         logits are read again (they are in L1), one a lane, for scores, sum and weights.
         Multihot rows are zeroed by their warp, then the winners are put in.
         Backward: one warp a token; the chosen logits by one lane each, the whole row only for a
         softmax over all experts. Nothing but ids is kept. Sums have a fixed order: repeatable.
Traffic  Forward tokens x (experts x 4 + topk x 8) bytes: 4096 x 256, top 8: 4.5 MB, 1.1 us at
         4.23 TB/s; multihot 9.4 MB, 2.2 us. Backward 5.5 MB, 1.3 us. Bound by the rounds' latency,
         not by bytes. Not measured yet.
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
#include <cfloat>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kWarps = 4;            // of a block; 1 where tokens are few, so that all SMs work
constexpr int64_t kFewTokens = 264;  // two blocks for each of 132 SMs
constexpr int kMaxExperts = 2048, kMaxTopk = 512;
constexpr int kSoftmax = 0, kSigmoid = 1, kSqrtSoftplus = 2;
constexpr float kInfinity = __builtin_huge_valf();

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

struct Rule {
  int64_t tokens;
  int experts, topk, score, groups, group_topk;
  bool renormalize, vector;  // vector: a lane's columns can be read and written whole
  float scale;
};

// Lists where map is null; ids are int64 where wide. In multihot form ids may be null.
struct Chosen {
  float* weights;
  void* ids;
  bool wide;
  bool* map;
  __device__ void set_id(int64_t at, int id) const {
    if (wide) static_cast<int64_t*>(ids)[at] = id;
    else static_cast<int*>(ids)[at] = id;
  }
  __device__ int id(int64_t at) const {
    return wide ? int(static_cast<const int64_t*>(ids)[at]) : static_cast<const int*>(ids)[at];
  }
};

template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};

// NaN counts as -inf, +inf as the largest number.
__device__ float tamed(float x) { return x == x ? fminf(x, FLT_MAX) : -kInfinity; }

template <typename T, int N>
__device__ void load_columns(const Matrix<T>& logits, int64_t row, int column, const Rule& rule,
                             float (&x)[N]) {
  Pack<T, N> raw;
  if (rule.vector) {
    if (column < rule.experts)
      raw = *reinterpret_cast<const Pack<T, N>*>(logits.data + row * logits.row_stride + column);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (column + j < rule.experts) raw.at[j] = logits(row, column + j);
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    x[j] = column + j < rule.experts ? tamed(to_float(raw.at[j])) : -kInfinity;
}

// Writes a lane's columns of a contiguous row.
template <typename T, int N>
__device__ void store_columns(T* __restrict__ row, int column, const Rule& rule,
                              const Pack<T, N>& value) {
  if (rule.vector) {
    if (column < rule.experts) *reinterpret_cast<Pack<T, N>*>(row + column) = value;
    return;
  }
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (column + j < rule.experts) row[column + j] = value.at[j];
}

// For a softmax: the highest logit and the inverse of the sum of exponentials.
struct Softmax {
  float top, inverse;
};

__device__ float power_of(float x, float top) {
  return top == -kInfinity ? 0.f : __expf(x - top);
}

template <int N>
__device__ Softmax softmax_of(const float (&x)[N]) {
  float top = -kInfinity, total = 0.f;
#pragma unroll
  for (int j = 0; j < N; ++j) top = fmaxf(top, x[j]);
  top = warp_max(top);
#pragma unroll
  for (int j = 0; j < N; ++j) total += power_of(x[j], top);
  total = warp_sum(total);
  return {top, total > 0.f ? 1.f / total : 0.f};
}

__device__ float score_of(float x, int score, Softmax softmax) {
  if (score == kSoftmax) return power_of(x, softmax.top) * softmax.inverse;
  if (score == kSigmoid) return 1.f / (1.f + __expf(-x));
  return x > 20.f ? sqrtf(x) : x > -80.f ? sqrtf(log1pf(__expf(x))) : 0.f;
}

// Orders as the numbers do; 0 is below all.
__device__ unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x + 0.f);  // -0 becomes +0
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// One bit for the first lane of each group that is among the best. `per_group` lanes, a power of
// two, rank a group; lane `part` of them takes every per_group'th value.
__device__ unsigned best_groups(const float* smem_value, int per_group, bool biased,
                                const Rule& rule) {
  const int lane = threadIdx.x % 32, group = lane / per_group, part = lane % per_group;
  const int size = rule.experts / rule.groups, steps = (size + per_group - 1) / per_group;
  float best = -kInfinity, second = -kInfinity;
  for (int i = 0; group < rule.groups && i < steps; ++i) {
    const int at = (i + group) % steps * per_group + part;  // groups start in different banks
    if (at >= size) continue;
    const float value = smem_value[group * size + at];
    second = fmaxf(second, fminf(best, value));
    best = fmaxf(best, value);
  }
  for (int step = per_group / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kFullMask, best, step);
    const float other_second = __shfl_xor_sync(kFullMask, second, step);
    second = fmaxf(fmaxf(second, other_second), fminf(best, other));
    best = fmaxf(best, other);
  }
  const float mine = biased && size > 1 ? best + second : best;
  int rank = 0;
  for (int g = 0; g < rule.groups; ++g) {
    const float other = __shfl_sync(kFullMask, mine, g * per_group);
    rank += other > mine || (other == mine && g < group);
  }
  return __ballot_sync(kFullMask, group < rule.groups && part == 0 && rank < rule.group_topk);
}

// topk rounds; the winners' ids go to smem_id.
template <int N>
__device__ void choose(unsigned (&key)[N], int column, int topk, int* smem_id) {
  unsigned best = 0;
  int slot = 0;
  const auto look = [&] {
    best = 0;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (key[j] > best) {
        best = key[j];
        slot = j;
      }
    }
  };
  look();
  for (int k = 0; k < topk; ++k) {
    const unsigned highest = __reduce_max_sync(kFullMask, best);
    const unsigned holders = __ballot_sync(kFullMask, best == highest);
    if (int(threadIdx.x % 32) != __ffs(holders) - 1) continue;
    smem_id[k] = column + slot;
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (j == slot) key[j] = 0;
    look();
  }
  __syncwarp();
}

// Scores of the chosen to smem_score (for a renormalised softmax relative to their highest), and
// their sum.
template <typename T>
__device__ float chosen_scores(const Matrix<T>& logits, int64_t row, const int* smem_id,
                               float* smem_score, const Rule& rule, Softmax softmax) {
  const int lane = threadIdx.x % 32;
  float top = -kInfinity, total = 0.f;
  for (int k = lane; k < rule.topk; k += 32) {
    const float x = tamed(to_float(logits(row, smem_id[k])));
    smem_score[k] = x;
    top = fmaxf(top, x);
  }
  if (rule.score == kSoftmax && rule.renormalize) softmax = {warp_max(top), 1.f};
  for (int k = lane; k < rule.topk; k += 32) {
    const float score = score_of(smem_score[k], rule.score, softmax);
    smem_score[k] = score;
    total += score;
  }
  return warp_sum(total) + (rule.score == kSoftmax ? 0.f : 1e-20f);
}

template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps)
topk_router_kernel(Matrix<T> logits, const float* __restrict__ bias, int64_t bias_stride, Rule rule,
                   Chosen chosen) {
  extern __shared__ float smem[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane * N;
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + warp;
  if (row >= rule.tokens) return;
  float* smem_score = smem + warp * (2 * rule.topk + (rule.groups > 1 ? rule.experts : 0));
  int* smem_id = reinterpret_cast<int*>(smem_score + rule.topk);
  float* smem_value = smem_score + 2 * rule.topk;

  float x[N];
  load_columns(logits, row, column, rule, x);
  Softmax softmax{0.f, 0.f};
  if (rule.score == kSoftmax && (bias != nullptr || !rule.renormalize)) softmax = softmax_of(x);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (bias != nullptr && column + j < rule.experts)
      x[j] = score_of(x[j], rule.score, softmax) + bias[(column + j) * bias_stride];
    x[j] = fminf(fmaxf(x[j], -FLT_MAX), FLT_MAX);  // NaN too becomes the lowest number
  }
  unsigned open = 1;
  int per_group = 32, group = 0, left = N + 1;  // columns until the next group begins
  if (rule.groups > 1) {
#pragma unroll
    for (int j = 0; j < N; ++j)
      if (column + j < rule.experts) smem_value[column + j] = x[j];
    __syncwarp();
    while (per_group * rule.groups > 32) per_group /= 2;
    open = best_groups(smem_value, per_group, bias != nullptr, rule);
    const int size = rule.experts / rule.groups;
    group = column / size;
    left = (group + 1) * size - column;
  }
  unsigned key[N];
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const bool may = column + j < rule.experts && (open >> group * per_group & 1);
    key[j] = may ? ordered(x[j]) : 0;
    if (--left == 0) {
      ++group;
      left = rule.experts / rule.groups;
    }
  }
  choose(key, column, rule.topk, smem_id);

  if (chosen.map != nullptr) {
    store_columns(chosen.weights + row * rule.experts, column, rule, Pack<float, N>{});
    store_columns(chosen.map + row * rule.experts, column, rule, Pack<bool, N>{});
  }
  const float total = chosen_scores(logits, row, smem_id, smem_score, rule, softmax);
  const float factor = !rule.renormalize ? rule.scale : total > 0.f ? rule.scale / total : 0.f;
  __syncwarp();  // the zeros lie before the winners' values
  for (int k = lane; k < rule.topk; k += 32) {
    const int id = smem_id[k];
    const int64_t at = chosen.map != nullptr ? row * rule.experts + id : row * rule.topk + k;
    chosen.weights[at] = rule.renormalize && rule.score != kSoftmax
                             ? rule.scale * (smem_score[k] / total)
                             : smem_score[k] * factor;
    if (chosen.map != nullptr) chosen.map[at] = true;
    if (chosen.ids != nullptr) chosen.set_id(row * rule.topk + k, id);
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps)
topk_router_backward_kernel(Matrix<T> logits, Matrix<float> grad, bool multihot, Rule rule,
                            Chosen chosen, T* __restrict__ grad_logits) {
  extern __shared__ float smem[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane * N;
  const int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + warp;
  if (row >= rule.tokens) return;
  float* smem_score = smem + warp * 3 * rule.topk;
  int* smem_id = reinterpret_cast<int*>(smem_score + rule.topk);
  float* smem_grad = smem_score + 2 * rule.topk;

  for (int k = lane; k < rule.topk; k += 32) {
    smem_id[k] = chosen.id(row * rule.topk + k);
    smem_grad[k] = grad(row, multihot ? smem_id[k] : k);
  }
  const bool whole = rule.score == kSoftmax && !rule.renormalize;
  float x[N];
  Softmax softmax{0.f, 0.f};
  if (whole) {
    load_columns(logits, row, column, rule, x);
    softmax = softmax_of(x);
  }
  const float total = chosen_scores(logits, row, smem_id, smem_score, rule, softmax);
  float dot = 0.f;
  for (int k = lane; k < rule.topk; k += 32) dot += smem_grad[k] * smem_score[k];
  dot = warp_sum(dot);

  Pack<T, N> others{};
  if (whole) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const bool finite = fabsf(x[j]) < FLT_MAX;
      const float score = score_of(x[j], kSoftmax, softmax);
      from_float(finite ? -score * rule.scale * dot : 0.f, others.at[j]);
    }
  }
  T* out = grad_logits + row * rule.experts;
  store_columns(out, column, rule, others);
  __syncwarp();  // these lie before the chosen ones' values
  for (int k = lane; k < rule.topk; k += 32) {
    const float raw = to_float(logits(row, smem_id[k])), score = smem_score[k];
    float up = smem_grad[k];  // gradient of the score, in units of scale
    if (rule.renormalize) up = total > 0.f ? (up - dot / total) / total : 0.f;
    float slope = score;
    if (whole) up -= dot;
    if (rule.score == kSigmoid) slope = score * (1.f - score);
    if (rule.score == kSqrtSoftplus)
      slope = score > 0.f ? 1.f / (1.f + __expf(-raw)) / (2.f * score) : 0.f;
    const bool finite = fabsf(raw) <= FLT_MAX;
    from_float(finite ? rule.scale * up * slope : 0.f, out[smem_id[k]]);
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("topk_router: " + what);
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

Rule rule_of(const Tensor& logits, int64_t topk, int64_t score, int64_t groups, int64_t group_topk,
             bool renormalize, double scale) {
  if (!logits.is_cuda() || logits.dim() != 2) fail("logits must be (tokens, experts) on a GPU");
  const int64_t experts = logits.size(1);
  if (experts < 1 || experts > kMaxExperts)
    fail("experts must be 1 to 2048, not " + std::to_string(experts));
  if (groups < 1 || groups > 32 || experts % groups != 0 || group_topk < 1 || group_topk > groups)
    fail("groups must be 1 to 32, divide the experts, and be no fewer than group_topk");
  if (topk < 1 || topk > kMaxTopk || topk > experts / groups * group_topk)
    fail("topk must be 1 to 512 and at most the experts of group_topk groups, not " +
         std::to_string(topk));
  return {logits.size(0), int(experts), int(topk), int(score), int(groups), int(group_topk),
          renormalize, false, float(scale)};
}

int warps_for(int64_t tokens) { return tokens <= kFewTokens ? 1 : kWarps; }

unsigned blocks_for(int64_t tokens) {
  const int64_t blocks = (tokens + warps_for(tokens) - 1) / warps_for(tokens);
  if (blocks > INT32_MAX) fail(std::to_string(tokens) + " tokens are too many");
  return blocks;
}

// (weights, map or ids, ids or nothing): with multihot the third is kept for backward.
std::tuple<Tensor, Tensor, Tensor> topk_router(const Tensor& logits, std::optional<Tensor> bias,
                                               int64_t topk, int64_t score, int64_t groups,
                                               int64_t group_topk, bool renormalize, double scale,
                                               bool multihot, bool wide) {
  Rule rule = rule_of(logits, topk, score, groups, group_topk, renormalize, scale);
  if (bias && (!bias->is_cuda() || bias->get_device() != logits.get_device() || bias->dim() != 1 ||
               bias->size(0) != rule.experts || bias->scalar_type() != ScalarType::Float))
    fail("bias must be (experts,), fp32, on the logits' device");
  const OnDevice on(logits);
  const int64_t width = multihot ? rule.experts : topk;
  const int32_t id_type = wide ? aoti_torch_dtype_int64() : aoti_torch_dtype_int32();
  Tensor weights = empty(logits, aoti_torch_dtype_float32(), rule.tokens, width);
  Tensor ids = empty(logits, id_type, rule.tokens, topk);
  Tensor map = empty(logits, aoti_torch_dtype_bool(), multihot ? rule.tokens : 0, rule.experts);
  const Chosen chosen{static_cast<float*>(weights.data_ptr()), ids.data_ptr(), wide,
                      multihot ? static_cast<bool*>(map.data_ptr()) : nullptr};
  with_types(logits, [&](auto t, auto n) {
    using T = decltype(t);
    constexpr int N = decltype(n)::value;
    if (rule.tokens == 0) return;
    rule.vector = whole_columns<T, N>(logits);
    const int warps = warps_for(rule.tokens);
    const size_t shared =
        sizeof(float) * warps * (2 * topk + (groups > 1 ? rule.experts : 0));
    topk_router_kernel<T, N><<<blocks_for(rule.tokens), 32 * warps, shared, on.stream>>>(
        matrix<T>(logits), bias ? static_cast<const float*>(bias->data_ptr()) : nullptr,
        bias ? bias->stride(0) : 0, rule, chosen);
  });
  check(cudaGetLastError(), "launch of topk_router_kernel");
  return {weights, map, ids};
}

Tensor topk_router_backward(const Tensor& grad, const Tensor& logits, const Tensor& ids,
                            int64_t score, bool renormalize, double scale, bool multihot) {
  Rule rule = rule_of(logits, ids.size(1), score, 1, 1, renormalize, scale);
  const OnDevice on(logits);
  int32_t dtype;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(logits.get(), &dtype));
  Tensor grad_logits = empty(logits, dtype, rule.tokens, rule.experts);
  const Chosen chosen{nullptr, ids.data_ptr(), ids.scalar_type() == ScalarType::Long, nullptr};
  with_types(logits, [&](auto t, auto n) {
    using T = decltype(t);
    constexpr int N = decltype(n)::value;
    if (rule.tokens == 0) return;
    rule.vector = whole_columns<T, N>(logits);
    const int warps = warps_for(rule.tokens);
    const size_t shared = sizeof(float) * warps * 3 * rule.topk;
    topk_router_backward_kernel<T, N><<<blocks_for(rule.tokens), 32 * warps, shared, on.stream>>>(
        matrix<T>(logits), matrix<float>(grad), multihot, rule, chosen,
        static_cast<T*>(grad_logits.data_ptr()));
  });
  check(cudaGetLastError(), "launch of topk_router_backward_kernel");
  return grad_logits;
}

STABLE_TORCH_LIBRARY(steelyard_topk_router, m) {
  m.def("forward(Tensor logits, Tensor? bias, int topk, int score, int groups, int group_topk, "
        "bool renormalize, float scale, bool multihot, bool wide) -> (Tensor, Tensor, Tensor)");
  m.def("backward(Tensor grad, Tensor logits, Tensor ids, int score, bool renormalize, "
        "float scale, bool multihot) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(steelyard_topk_router, CompositeExplicitAutograd, m) {
  m.impl("forward", TORCH_BOX(&topk_router));
  m.impl("backward", TORCH_BOX(&topk_router_backward));
}
"""

load_inline(
    name="steelyard_topk_router",
    cpp_sources="",
    cuda_sources=CUDA_SOURCE,
    extra_cuda_cflags=["-O3", "-DUSE_CUDA"],
    is_python_module=False,
    no_implicit_headers=True,
)
topk_router = torch.ops.steelyard_topk_router.forward.default
topk_router_backward = torch.ops.steelyard_topk_router.backward.default
SCORES = ("softmax", "sigmoid", "sqrtsoftplus")


class TopkRouter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, bias, rule):
        weights, chosen, ids = topk_router(logits, bias, *rule)
        _, score, _, _, renormalize, scale, multihot, _ = rule
        ctx.backward_rule = (score, renormalize, scale, multihot)
        ctx.save_for_backward(logits, ids)
        second = chosen if multihot else ids
        ctx.mark_non_differentiable(second)
        ctx.set_materialize_grads(False)  # no zeros for the ids' gradient, which is not read
        return weights, second

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        if grad is None:
            return None, None, None
        return topk_router_backward(grad, *ctx.saved_tensors, *ctx.backward_rule), None, None


class ModelNew(nn.Module):
    def __init__(
        self,
        topk=8,
        score="sigmoid",
        groups=8,
        group_topk=4,
        renormalize=True,
        scale=2.5,
        output="lists",
        index="int32",
    ):
        super().__init__()
        self.multihot = output == "multihot"
        wide = index == "int64" and not self.multihot
        choice = (topk, SCORES.index(score), groups, group_topk)
        self.rule = (*choice, renormalize, scale, self.multihot, wide)

    def forward(self, logits, bias=None):
        if logits.requires_grad and torch.is_grad_enabled():
            return TopkRouter.apply(logits, bias, self.rule)
        weights, chosen, ids = topk_router(logits, bias, *self.rule)
        return weights, chosen if self.multihot else ids
