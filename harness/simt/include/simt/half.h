// cuda_fp16.h
#pragma once
#include <cmath>
#include <type_traits>

#include "atomics.h"
#include "half_conversions.h"
#include "math.h"

namespace simt {
template <class H>
struct RawBits {
  unsigned short x;
};
}  // namespace simt

#define SIMT_H __half
#define SIMT_H2 __half2
#define SIMT_TO simt::to_fp16
#define SIMT_FROM simt::from_fp16
#include "half_type.h"
#undef SIMT_H
#undef SIMT_H2
#undef SIMT_TO
#undef SIMT_FROM

typedef __half half;
typedef __half2 half2;
typedef simt::RawBits<__half> __half_raw;

inline __half __float2half(float f) { return __half(f); }
inline __half __float2half_rn(float f) { return __half(f); }
inline __half __double2half(double f) { return __half(static_cast<float>(f)); }
inline float __half2float(__half h) { return float(h); }
inline __half2 __float2half2_rn(float f) { return {__half(f), __half(f)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 f) { return {__half(f.x), __half(f.y)}; }
inline float2 __half22float2(__half2 h) { return {float(h.x), float(h.y)}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline __half2 __low2half2(__half2 h) { return {h.x, h.x}; }
inline __half2 __high2half2(__half2 h) { return {h.y, h.y}; }
inline __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
inline __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
inline __half __ushort_as_half(unsigned short u) { return __half(simt::RawBits<__half>{u}); }
inline __half __short_as_half(short u) { return __ushort_as_half(static_cast<unsigned short>(u)); }
inline unsigned short __half_as_ushort(__half h) { return h.__x; }
inline short __half_as_short(__half h) { return static_cast<short>(h.__x); }
inline __half __int2half_rn(int i) { return __half(i); }
inline __half __uint2half_rn(unsigned i) { return __half(i); }
inline int __half2int_rn(__half h) { return static_cast<int>(nearbyintf(float(h))); }
inline int __half2int_rz(__half h) { return static_cast<int>(float(h)); }
