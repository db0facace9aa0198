// Warp intrinsics. The lanes in a mask meet, each leaves its value, each reads what it needs.
#pragma once
#include <cstring>
#include <type_traits>

#include "state.h"

namespace simt {

template <class T>
SIMT_UNSEEN T read_lane(const Meet* m, unsigned lane, T own, Site site) {
  if (!(m->arrived >> lane & 1)) {
    read_from_missing_lane(site);
    return own;
  }
  T value;
  memcpy(static_cast<void*>(&value), m->value[lane], sizeof(T));
  return value;
}

template <class T>
SIMT_UNSEEN T shuffle(unsigned mask, T value, unsigned from, Site site) {
  static_assert(sizeof(T) <= 32, "a shuffled value has at most 32 bytes");
  Meet* m = meet(mask, &value, sizeof(T), site);
  const T result = read_lane(m, from, value, site);
  leave(m);
  return result;
}

// The lane `delta` away within the sub-warp of `width`, or the own lane at its border.
inline unsigned lane_up(unsigned delta, int width) {
  const int from = int(simt_lane) - int(delta);
  return from < int(simt_lane & ~unsigned(width - 1)) ? simt_lane : from;
}
inline unsigned lane_down(unsigned delta, int width) {
  const unsigned from = simt_lane + delta;
  return from > (simt_lane | unsigned(width - 1)) ? simt_lane : from;
}
inline unsigned lane_xor(int bits, int width) {
  const unsigned from = simt_lane ^ unsigned(bits);
  return from > (simt_lane | unsigned(width - 1)) ? simt_lane : from;
}
inline unsigned lane_at(int source, int width) {
  return (simt_lane & ~unsigned(width - 1)) | (unsigned(source) & unsigned(width - 1));
}

template <class T, class F>
SIMT_UNSEEN T reduce(unsigned mask, T value, F join, Site site) {
  Meet* m = meet(mask, &value, sizeof(T), site);
  T result{};
  bool first = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(m->arrived >> lane & 1)) continue;
    const T v = read_lane(m, lane, value, site);
    result = first ? v : join(result, v);
    first = false;
  }
  leave(m);
  return result;
}

template <class T, class F>
SIMT_UNSEEN T scan(unsigned mask, T value, F join, Site site) {  // inclusive, in lane order
  Meet* m = meet(mask, &value, sizeof(T), site);
  T result = value;
  bool first = true;
  for (unsigned lane = 0; lane <= simt_lane; ++lane) {
    if (!(m->arrived >> lane & 1)) continue;
    const T v = read_lane(m, lane, value, site);
    result = first ? v : join(result, v);
    first = false;
  }
  leave(m);
  return result;
}

inline unsigned ballot(unsigned mask, bool predicate, Site site) {
  return reduce(
      mask, predicate ? 1u << simt_lane : 0u, [](unsigned a, unsigned b) { return a | b; }, site);
}

template <class T>
SIMT_UNSEEN unsigned match_any(unsigned mask, T value, Site site) {
  Meet* m = meet(mask, &value, sizeof(T), site);
  unsigned same = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((m->arrived >> lane & 1) && !memcmp(m->value[lane], &value, sizeof(T))) same |= 1u << lane;
  leave(m);
  return same;
}

}  // namespace simt

inline void __syncwarp(unsigned mask = 0xffffffffu, SIMT_SITE) {
  simt::warp_barrier(mask, SIMT_HERE("__syncwarp"));
}
template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = 32, SIMT_SITE) {
  return simt::shuffle(mask, v, simt::lane_at(from, width), SIMT_HERE("__shfl_sync"));
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, SIMT_SITE) {
  return simt::shuffle(mask, v, simt::lane_up(delta, width), SIMT_HERE("__shfl_up_sync"));
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, SIMT_SITE) {
  return simt::shuffle(mask, v, simt::lane_down(delta, width), SIMT_HERE("__shfl_down_sync"));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, SIMT_SITE) {
  return simt::shuffle(mask, v, simt::lane_xor(bits, width), SIMT_HERE("__shfl_xor_sync"));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SIMT_SITE) {
  return simt::ballot(mask, predicate, SIMT_HERE("__ballot_sync"));
}
inline int __any_sync(unsigned mask, int predicate, SIMT_SITE) {
  return simt::ballot(mask, predicate, SIMT_HERE("__any_sync")) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SIMT_SITE) {
  return simt::ballot(mask, !predicate, SIMT_HERE("__all_sync")) == 0;
}
inline int __uni_sync(unsigned mask, int predicate, SIMT_SITE) {
  const unsigned votes = simt::ballot(mask, predicate, SIMT_HERE("__uni_sync"));
  return votes == 0 || votes == mask;
}
inline unsigned __activemask(SIMT_SITE) { return simt::together(SIMT_HERE("__activemask")); }
template <class T>
unsigned __match_any_sync(unsigned mask, T v, SIMT_SITE) {
  return simt::match_any(mask, v, SIMT_HERE("__match_any_sync"));
}
template <class T>
unsigned __match_all_sync(unsigned mask, T v, int* all, SIMT_SITE) {
  const unsigned same = simt::match_any(mask, v, SIMT_HERE("__match_all_sync"));
  *all = same == mask;
  return *all ? mask : 0;
}

#define SIMT_REDUCE(name, T, expression)                                              \
  inline T name(unsigned mask, T v, SIMT_SITE) {                                      \
    return simt::reduce(mask, v, [](T a, T b) -> T { return expression; }, SIMT_HERE(#name)); \
  }
SIMT_REDUCE(__reduce_add_sync, int, a + b)
SIMT_REDUCE(__reduce_add_sync, unsigned, a + b)
SIMT_REDUCE(__reduce_max_sync, int, a > b ? a : b)
SIMT_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
SIMT_REDUCE(__reduce_min_sync, int, a < b ? a : b)
SIMT_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
SIMT_REDUCE(__reduce_and_sync, unsigned, a& b)
SIMT_REDUCE(__reduce_or_sync, unsigned, a | b)
SIMT_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
#undef SIMT_REDUCE
