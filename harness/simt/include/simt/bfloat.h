// cuda_bf16.h
#pragma once
#include "half.h"

#define SIMT_H __nv_bfloat16
#define SIMT_H2 __nv_bfloat162
#define SIMT_TO simt::to_bf16
#define SIMT_FROM simt::from_bf16
#include "half_type.h"
#undef SIMT_H
#undef SIMT_H2
#undef SIMT_TO
#undef SIMT_FROM

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
typedef simt::RawBits<__nv_bfloat16> __nv_bfloat16_raw;

inline __nv_bfloat16 __float2bfloat16(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __float2bfloat16_rn(float f) { return __nv_bfloat16(f); }
inline __nv_bfloat16 __double2bfloat16(double f) { return __nv_bfloat16(static_cast<float>(f)); }
inline __nv_bfloat16 __float2bfloat16_rz(float f) {
  return simt::RawBits<__nv_bfloat16>{static_cast<unsigned short>(simt::float_to_bits(f) >> 16)};
}
inline float __bfloat162float(__nv_bfloat16 h) { return float(h); }
inline __nv_bfloat162 __float2bfloat162_rn(float f) { return {f, f}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) { return {f.x, f.y}; }
inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {float(h.x), float(h.y)}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) { return h.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) { return h.y; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 h) { return {h.x, h.x}; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 h) { return {h.y, h.y}; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) {
  return simt::RawBits<__nv_bfloat16>{u};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.__x; }
inline short __bfloat16_as_short(__nv_bfloat16 h) { return static_cast<short>(h.__x); }
inline __nv_bfloat16 __int2bfloat16_rn(int i) { return __nv_bfloat16(i); }
inline int __bfloat162int_rn(__nv_bfloat16 h) { return static_cast<int>(nearbyintf(float(h))); }
inline int __bfloat162int_rz(__nv_bfloat16 h) { return static_cast<int>(float(h)); }
