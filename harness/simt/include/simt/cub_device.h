// cub::DeviceReduce, DeviceScan and DeviceRadixSort: one kernel of one thread each.
#pragma once
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cub_operators.h"
#include "host_api.h"

namespace simt {

// CUB's two calls: the first asks for the size of the temporary storage, the second does the work.
template <class Work>
cudaError_t cub_device(const char* name, void* storage, size_t& bytes, cudaStream_t stream, Work work) {
  if (storage == nullptr) return bytes = 256, cudaSuccess;
  launch(Config(1, 1, 0, stream), Kernel{name, __FILE__, __LINE__, SIMT_CHECKED}, work);
  return peek_error();
}

template <class In>
using Element = std::decay_t<decltype(*std::declval<In>())>;

template <class T>
T least() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::lowest();
}
template <class T>
T greatest() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::max();
}

template <class In, class Out, class N, class Op, class T>
auto reduction(In in, Out out, N n, Op op, T first) {
  return [=] {
    T sum = first;
    for (N i = 0; i < n; ++i) sum = op(sum, in[i]);
    *out = sum;
  };
}

template <class In, class Out, class N, class Op>
auto best_place(In in, Out out, N n, Op op) {
  return [=] {
    cub::KeyValuePair<int, Element<In>> best(0, n > 0 ? in[0] : Element<In>{});
    for (N i = 1; i < n; ++i) best = op(best, {static_cast<int>(i), in[i]});
    out->key = best.key;
    out->value = best.value;
  };
}

template <class In, class Out, class N, class Op>
auto inclusive_scan(In in, Out out, N n, Op op) {
  return [=] {
    if (n <= 0) return;
    Element<In> sum = in[0];
    out[0] = sum;
    for (N i = 1; i < n; ++i) out[i] = sum = op(sum, in[i]);
  };
}

template <class In, class Out, class N, class Op, class T>
auto exclusive_scan(In in, Out out, N n, Op op, T first) {
  return [=] {
    T sum = first;
    for (N i = 0; i < n; ++i) {
      const T next = op(sum, in[i]);
      out[i] = sum;
      sum = next;
    }
  };
}

// Unsigned bits of the key in the order of its type's values.
template <class K>
auto sort_bits(K key) {
  typename std::conditional_t<sizeof(K) == 8, std::enable_if<true, uint64_t>,
                              std::enable_if<true, uint32_t>>::type bits = 0;
  memcpy(&bits, static_cast<const void*>(&key), sizeof(K));
  const auto sign = decltype(bits)(1) << (8 * sizeof(K) - 1);
  if (std::is_integral_v<K>) return std::is_signed_v<K> ? decltype(bits)(bits ^ sign) : bits;
  const auto all = static_cast<decltype(bits)>(sign | (sign - 1));
  return static_cast<decltype(bits)>(bits & sign ? ~bits & all : bits | sign);
}

// The order is found outside the kernel, which then moves keys and values where it is seen.
template <class K>
size_t* sorted_order(const K* keys, size_t n, int low, int high, bool descending) {
  size_t* order = static_cast<size_t*>(device_alloc(n * sizeof(size_t)));
  for (size_t i = 0; i < n; ++i) order[i] = i;
  const int width = std::min<int>(high, 8 * sizeof(K)) - low;
  auto bits = [&](size_t i) {
    const auto b = sort_bits(keys[i]) >> low;
    return width >= int(8 * sizeof b) ? b : b & ((decltype(b + 0)(1) << width) - 1);
  };
  std::stable_sort(order, order + n, [&](size_t a, size_t b) {
    return descending ? bits(b) < bits(a) : bits(a) < bits(b);
  });
  return order;
}

template <class K, class V>
struct RadixSort {
  const K* keys;
  K* keys_out;
  const V* values;
  V* values_out;
  size_t n;

  cudaError_t run(void* storage, size_t& bytes, int low, int high, bool descending,
                  cudaStream_t stream) const {
    size_t* order = storage ? sorted_order(keys, n, low, high, descending) : nullptr;
    const cudaError_t done =
        cub_device("cub::DeviceRadixSort", storage, bytes, stream, [order, s = *this] {
          for (size_t i = 0; i < s.n; ++i) {
            s.keys_out[i] = s.keys[order[i]];
            if (s.values) s.values_out[i] = s.values[order[i]];
          }
        });
    device_free(order);
    return done;
  }
};

}  // namespace simt

namespace cub {

#define SIMT_CUB template <class In, class Out, class N>                                       \
  static cudaError_t
#define SIMT_ARGUMENTS void *storage, size_t &bytes, In in, Out out, N n
#define SIMT_REST cudaStream_t stream = nullptr, bool = false
#define SIMT_RUN(what, work) simt::cub_device("cub::" what, storage, bytes, stream, work)

struct DeviceReduce {
  SIMT_CUB Sum(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceReduce::Sum", simt::reduction(in, out, n, cub::Sum(), simt::Element<In>{}));
  }
  SIMT_CUB Max(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceReduce::Max",
                    simt::reduction(in, out, n, cub::Max(), simt::least<simt::Element<In>>()));
  }
  SIMT_CUB Min(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceReduce::Min",
                    simt::reduction(in, out, n, cub::Min(), simt::greatest<simt::Element<In>>()));
  }
  SIMT_CUB ArgMax(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceReduce::ArgMax", simt::best_place(in, out, n, cub::ArgMax()));
  }
  SIMT_CUB ArgMin(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceReduce::ArgMin", simt::best_place(in, out, n, cub::ArgMin()));
  }
  template <class In, class Out, class N, class Op, class T>
  static cudaError_t Reduce(SIMT_ARGUMENTS, Op op, T first, SIMT_REST) {
    return SIMT_RUN("DeviceReduce::Reduce", simt::reduction(in, out, n, op, first));
  }
};

struct DeviceScan {
  SIMT_CUB InclusiveSum(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceScan::InclusiveSum", simt::inclusive_scan(in, out, n, cub::Sum()));
  }
  SIMT_CUB ExclusiveSum(SIMT_ARGUMENTS, SIMT_REST) {
    return SIMT_RUN("DeviceScan::ExclusiveSum",
                    simt::exclusive_scan(in, out, n, cub::Sum(), simt::Element<In>{}));
  }
  template <class In, class Out, class Op, class N>
  static cudaError_t InclusiveScan(void* storage, size_t& bytes, In in, Out out, Op op, N n, SIMT_REST) {
    return SIMT_RUN("DeviceScan::InclusiveScan", simt::inclusive_scan(in, out, n, op));
  }
  template <class In, class Out, class Op, class T, class N>
  static cudaError_t ExclusiveScan(void* storage, size_t& bytes, In in, Out out, Op op, T first, N n,
                                   SIMT_REST) {
    return SIMT_RUN("DeviceScan::ExclusiveScan", simt::exclusive_scan(in, out, n, op, first));
  }
};

struct DeviceRadixSort {
#define SIMT_SORT(suffix, descending)                                                            \
  template <class K, class V, class N>                                                           \
  static cudaError_t SortPairs##suffix(void* storage, size_t& bytes, const K* keys, K* keys_out, \
                                       const V* values, V* values_out, N n, int low = 0,         \
                                       int high = 8 * sizeof(K), SIMT_REST) {                    \
    const simt::RadixSort<K, V> sort{keys, keys_out, values, values_out, size_t(n)};             \
    return sort.run(storage, bytes, low, high, descending, stream);                              \
  }                                                                                              \
  template <class K, class N>                                                                    \
  static cudaError_t SortKeys##suffix(void* storage, size_t& bytes, const K* keys, K* keys_out,  \
                                      N n, int low = 0, int high = 8 * sizeof(K), SIMT_REST) {   \
    const simt::RadixSort<K, char> sort{keys, keys_out, nullptr, nullptr, size_t(n)};            \
    return sort.run(storage, bytes, low, high, descending, stream);                              \
  }
  SIMT_SORT(, false)
  SIMT_SORT(Descending, true)
#undef SIMT_SORT
};

#undef SIMT_CUB
#undef SIMT_ARGUMENTS
#undef SIMT_REST
#undef SIMT_RUN

}  // namespace cub
