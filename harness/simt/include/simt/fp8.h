// cuda_fp8.h: e4m3 and e5m2, rounded to nearest even from fp32, to which they convert exactly.
#pragma once
#include <cmath>
#include <cstdint>

#include "half.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace simt {

struct Fp8Format {
  int mantissa, bias;
  float largest;
  unsigned char nan, overflow;  // overflow: what is beyond the largest becomes, unless saturated
};
constexpr Fp8Format fp8_format(__nv_fp8_interpretation_t i) {
  return i == __NV_E4M3 ? Fp8Format{3, 7, 448.0f, 0x7f, 0x7f} : Fp8Format{2, 15, 57344.0f, 0x7f, 0x7c};
}

inline float from_fp8(unsigned char bits, __nv_fp8_interpretation_t i) {
  if (i == __NV_E5M2) return from_fp16(static_cast<uint16_t>(bits << 8));
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float v = exponent ? ldexpf(8.0f + mantissa, exponent - 10) : ldexpf(mantissa, -9);
  if ((bits & 0x7f) == 0x7f) v = NAN;
  return bits & 0x80 ? -v : v;
}

inline unsigned char to_fp8(float x, __nv_saturation_t saturation, __nv_fp8_interpretation_t i) {
  const Fp8Format f = fp8_format(i);
  const unsigned char sign = std::signbit(x) ? 0x80 : 0;
  const float size = fabsf(x);
  if (size != size) return f.nan;
  const int lowest = 1 - f.bias;  // exponent of the smallest normal number
  const int exponent = size == 0 || ilogbf(size) < lowest ? lowest : ilogbf(size);
  const float steps = std::isinf(size) ? size : nearbyintf(ldexpf(size, f.mantissa - exponent));
  if (ldexpf(steps, exponent - f.mantissa) > f.largest) {
    const unsigned char largest = i == __NV_E4M3 ? 0x7e : 0x7b;
    return sign | (saturation == __NV_SATFINITE ? largest : f.overflow);
  }
  // Steps carry into the exponent by themselves; the hidden bit is one step of the exponent.
  const int hidden = 1 << f.mantissa, s = static_cast<int>(steps);
  return sign | static_cast<unsigned char>(s + (exponent - lowest) * hidden);
}

template <__nv_fp8_interpretation_t I>
struct Fp8 {
  __nv_fp8_storage_t __x;
  Fp8() = default;
  template <class T, class = std::enable_if_t<std::is_convertible_v<T, float>>>
  explicit Fp8(const T& v) : __x(to_fp8(static_cast<float>(v), __NV_SATFINITE, I)) {}
  operator float() const { return from_fp8(__x, I); }
  explicit operator double() const { return from_fp8(__x, I); }
  explicit operator __half() const { return __half(from_fp8(__x, I)); }
  explicit operator int() const { return static_cast<int>(from_fp8(__x, I)); }
};

template <__nv_fp8_interpretation_t I>
struct Fp8x2 {
  __nv_fp8x2_storage_t __x;
  Fp8x2() = default;
  explicit Fp8x2(float2 v) : __x(to_fp8(v.x, __NV_SATFINITE, I) | to_fp8(v.y, __NV_SATFINITE, I) << 8) {}
  explicit Fp8x2(__half2 v) : Fp8x2(__half22float2(v)) {}
  explicit operator float2() const { return {from_fp8(__x & 255, I), from_fp8(__x >> 8, I)}; }
  explicit operator __half2() const { return __float22half2_rn(static_cast<float2>(*this)); }
};

template <__nv_fp8_interpretation_t I>
struct Fp8x4 {
  __nv_fp8x4_storage_t __x;
  Fp8x4() = default;
  explicit Fp8x4(float4 v)
      : __x(Fp8x2<I>(float2{v.x, v.y}).__x | unsigned(Fp8x2<I>(float2{v.z, v.w}).__x) << 16) {}
  explicit operator float4() const {
    return {from_fp8(__x & 255, I), from_fp8(__x >> 8 & 255, I), from_fp8(__x >> 16 & 255, I),
            from_fp8(__x >> 24, I)};
  }
};

}  // namespace simt

typedef simt::Fp8<__NV_E4M3> __nv_fp8_e4m3;
typedef simt::Fp8<__NV_E5M2> __nv_fp8_e5m2;
typedef simt::Fp8x2<__NV_E4M3> __nv_fp8x2_e4m3;
typedef simt::Fp8x2<__NV_E5M2> __nv_fp8x2_e5m2;
typedef simt::Fp8x4<__NV_E4M3> __nv_fp8x4_e4m3;
typedef simt::Fp8x4<__NV_E5M2> __nv_fp8x4_e5m2;

inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t s,
                                                __nv_fp8_interpretation_t i) {
  return simt::to_fp8(x, s, i);
}
inline __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t s,
                                                     __nv_fp8_interpretation_t i) {
  return simt::to_fp8(v.x, s, i) | simt::to_fp8(v.y, s, i) << 8;
}
inline __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t s,
                                                  __nv_fp8_interpretation_t i) {
  return simt::to_fp8(simt::from_fp16(x.x), s, i);
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t i) {
  return {simt::to_fp16(simt::from_fp8(x, i))};
}
