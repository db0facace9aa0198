// cuda::atomic and cuda::atomic_ref of libcu++, on the same footing as atomicAdd and its kin.
#pragma once
#include <atomic>

#include <cuda_runtime.h>

#include "atomics.h"
#include "cuda_std.h"

namespace cuda {

using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
inline void atomic_thread_fence(memory_order, thread_scope = thread_scope_system) { simt::fence(); }

template <class T, thread_scope = thread_scope_system>
class atomic_ref {
 public:
  typedef T value_type;
  explicit atomic_ref(T& at) : at_(&at) {}

  T load(memory_order order = memory_order_seq_cst, SIMT_SITE) const {
    return updated([](T old) { return old; }, order, SIMT_HERE("cuda::atomic::load"));
  }
  void store(T v, memory_order order = memory_order_seq_cst, SIMT_SITE) const {
    updated([v](T) { return v; }, order, SIMT_HERE("cuda::atomic::store"));
  }
  T exchange(T v, memory_order order = memory_order_seq_cst, SIMT_SITE) const {
    return updated([v](T) { return v; }, order, SIMT_HERE("cuda::atomic::exchange"));
  }
#define SIMT_FETCH(name, expression)                                                      \
  T name(T v, memory_order order = memory_order_seq_cst, SIMT_SITE) const {               \
    return updated([v](T old) -> T { return expression; }, order, SIMT_HERE("cuda::" #name)); \
  }
  SIMT_FETCH(fetch_add, old + v)
  SIMT_FETCH(fetch_sub, old - v)
  SIMT_FETCH(fetch_and, old & v)
  SIMT_FETCH(fetch_or, old | v)
  SIMT_FETCH(fetch_xor, old ^ v)
  SIMT_FETCH(fetch_max, old < v ? v : old)
  SIMT_FETCH(fetch_min, v < old ? v : old)
#undef SIMT_FETCH
  bool compare_exchange_strong(T& expected, T v, memory_order order = memory_order_seq_cst,
                               SIMT_SITE) const {
    simt::fence();
    const T old = simt::atomic_swap_if(at_, expected, v, SIMT_HERE("cuda::compare_exchange"));
    if (order != memory_order_relaxed) simt::fence();
    const bool done = memcmp(&old, &expected, sizeof(T)) == 0;
    if (!done) expected = old;
    return done;
  }
  bool compare_exchange_strong(T& expected, T v, memory_order order, memory_order, SIMT_SITE) const {
    return compare_exchange_strong(expected, v, order, simt_file, simt_line);
  }
  bool compare_exchange_weak(T& expected, T v, memory_order order = memory_order_seq_cst,
                             SIMT_SITE) const {
    return compare_exchange_strong(expected, v, order, simt_file, simt_line);
  }
  bool compare_exchange_weak(T& expected, T v, memory_order order, memory_order, SIMT_SITE) const {
    return compare_exchange_strong(expected, v, order, simt_file, simt_line);
  }
  void wait(T old, memory_order order = memory_order_seq_cst, SIMT_SITE) const {
    while (load(order, simt_file, simt_line) == old) simt::spin(SIMT_HERE("cuda::atomic::wait"));
  }
  void notify_one() const {}
  void notify_all() const {}
  T operator=(T v) const { return store(v), v; }
  operator T() const { return load(); }
  T operator++() const { return fetch_add(T(1)) + T(1); }
  T operator++(int) const { return fetch_add(T(1)); }
  T operator--() const { return fetch_sub(T(1)) - T(1); }
  T operator--(int) const { return fetch_sub(T(1)); }
  T operator+=(T v) const { return fetch_add(v) + v; }
  T operator-=(T v) const { return fetch_sub(v) - v; }
  T operator|=(T v) const { return fetch_or(v) | v; }
  T operator&=(T v) const { return fetch_and(v) & v; }

 private:
  template <class F>
  T updated(F next, memory_order order, simt::Site site) const {
    const bool orders = order != memory_order_relaxed;
    if (orders) simt::fence();
    const T old = simt::atomic_update(at_, next, site);
    if (orders) simt::fence();
    return old;
  }
  T* at_;
};

template <class T, thread_scope S = thread_scope_system>
class atomic : public atomic_ref<T, S> {
 public:
  atomic() : atomic_ref<T, S>(value_) {}
  atomic(T v) : atomic_ref<T, S>(value_), value_(v) {}
  atomic(const atomic&) = delete;
  using atomic_ref<T, S>::operator=;

 private:
  T value_;
};

namespace std {
using ::cuda::atomic_thread_fence;
template <class T>
using atomic = ::cuda::atomic<T, thread_scope_system>;
template <class T>
using atomic_ref = ::cuda::atomic_ref<T, thread_scope_system>;
}  // namespace std

}  // namespace cuda
