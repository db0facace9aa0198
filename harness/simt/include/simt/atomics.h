// Atomics. Blocks run on several OS threads, so these are real ones. An atomic that changes nothing
// may be a wait: after some in a row the others get to run.
#pragma once
#include <cstring>
#include <type_traits>

#include "state.h"

namespace simt {

void on_atomic(const void* p, unsigned bytes, Site);  // checked mode only

template <class T>
struct Identity {
  using type = T;
};
template <class T>
using Plain = typename Identity<T>::type;  // keeps a parameter out of deduction

template <size_t N>
struct Bits;
template <>
struct Bits<1> {
  using type = uint8_t;
};
template <>
struct Bits<2> {
  using type = uint16_t;
};
template <>
struct Bits<4> {
  using type = uint32_t;
};
template <>
struct Bits<8> {
  using type = uint64_t;
};

template <class T, class F>
SIMT_UNSEEN inline T atomic_update(T* p, F next, Site site) {
  using B = typename Bits<sizeof(T)>::type;
  B* bits = reinterpret_cast<B*>(p);
#if SIMT_CHECKED
  on_atomic(p, sizeof(T), site);
#endif
  B seen = __atomic_load_n(bits, __ATOMIC_SEQ_CST), wanted;
  T old;
  do {
    memcpy(static_cast<void*>(&old), &seen, sizeof(T));
    const T value = next(old);
    memcpy(&wanted, static_cast<const void*>(&value), sizeof(T));
  } while (!__atomic_compare_exchange_n(bits, &seen, wanted, true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST));
  changed_nothing(seen == wanted, site);
  return old;
}

template <class T>
SIMT_UNSEEN inline T atomic_swap_if(T* p, T expected, T value, Site site) {
  using B = typename Bits<sizeof(T)>::type;
  B want, set;
  memcpy(&want, static_cast<const void*>(&expected), sizeof(T));
  memcpy(&set, static_cast<const void*>(&value), sizeof(T));
#if SIMT_CHECKED
  on_atomic(p, sizeof(T), site);
#endif
  const bool same = !__atomic_compare_exchange_n(reinterpret_cast<B*>(p), &want, set, false,
                                                 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
                    want == set;
  changed_nothing(same, site);
  T old;
  memcpy(static_cast<void*>(&old), &want, sizeof(T));
  return old;
}

template <class T>
using Value = std::remove_volatile_t<T>;

}  // namespace simt

#define SIMT_ATOMIC_AS(name, expression)                                                   \
  template <class T>                                                                       \
  inline simt::Value<T> name(T* p, simt::Plain<simt::Value<T>> v, SIMT_SITE) {             \
    using V = simt::Value<T>;                                                              \
    return simt::atomic_update(                                                            \
        const_cast<V*>(p), [v](V old) -> V { (void)v; return expression; }, SIMT_HERE(#name)); \
  }
#define SIMT_ATOMIC(name, expression)       \
  SIMT_ATOMIC_AS(name, expression)          \
  SIMT_ATOMIC_AS(name##_block, expression)  \
  SIMT_ATOMIC_AS(name##_system, expression)
SIMT_ATOMIC(atomicAdd, old + v)
SIMT_ATOMIC(atomicSub, old - v)
SIMT_ATOMIC(atomicMax, old < v ? v : old)
SIMT_ATOMIC(atomicMin, v < old ? v : old)
SIMT_ATOMIC(atomicAnd, old& v)
SIMT_ATOMIC(atomicOr, old | v)
SIMT_ATOMIC(atomicXor, old ^ v)
SIMT_ATOMIC(atomicExch, v)
SIMT_ATOMIC(atomicInc, old >= v ? 0 : old + 1)
SIMT_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1)
#undef SIMT_ATOMIC
#undef SIMT_ATOMIC_AS

#define SIMT_ATOMIC_CAS(name)                                                                 \
  template <class T>                                                                          \
  inline simt::Value<T> name(T* p, simt::Plain<simt::Value<T>> expected,                      \
                             simt::Plain<simt::Value<T>> value, SIMT_SITE) {                  \
    return simt::atomic_swap_if(const_cast<simt::Value<T>*>(p), expected, value,              \
                                SIMT_HERE(#name));                                            \
  }
SIMT_ATOMIC_CAS(atomicCAS)
SIMT_ATOMIC_CAS(atomicCAS_block)
SIMT_ATOMIC_CAS(atomicCAS_system)
#undef SIMT_ATOMIC_CAS

// float2 and float4 are added to one component at a time, as sm_90 does.
inline float2 atomicAdd(float2* p, float2 v, SIMT_SITE) {
  return {atomicAdd(&p->x, v.x, simt_file, simt_line), atomicAdd(&p->y, v.y, simt_file, simt_line)};
}
inline float4 atomicAdd(float4* p, float4 v, SIMT_SITE) {
  return {atomicAdd(&p->x, v.x, simt_file, simt_line), atomicAdd(&p->y, v.y, simt_file, simt_line),
          atomicAdd(&p->z, v.z, simt_file, simt_line), atomicAdd(&p->w, v.w, simt_file, simt_line)};
}
