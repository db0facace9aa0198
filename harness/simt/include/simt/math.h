// Math intrinsics. Fast ones are the accurate ones here: a pass does not depend on their error.
#pragma once
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <math.h>
#include <type_traits>

using std::isfinite;
using std::isinf;
using std::isnan;

// glibc declares these reserved names itself, hence macros.
#define __expf expf
#define __exp10f(x) exp10f(x)
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __tanhf tanhf
#define __powf powf
#define CUDART_INF_F __builtin_inff()
#define CUDART_INF __builtin_inf()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN __builtin_nan("")
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define CUDART_L2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_MAX_NORMAL_F 3.402823466e38f
#define CUDART_ONE_F 1.0f
#define CUDART_ZERO_F 0.0f

inline void __sincosf(float x, float* s, float* c) { sincosf(x, s, c); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * x)); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * x)); }
inline double sinpi(double x) { return sin(M_PI * x); }
inline double cospi(double x) { return cos(M_PI * x); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
inline float erfcxf(float x) {
  return static_cast<float>(exp(static_cast<double>(x) * x) * erfc(static_cast<double>(x)));
}
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }

#define SIMT_ROUNDED(suffix)                                                      \
  inline float __fadd_##suffix(float a, float b) { return a + b; }                \
  inline float __fsub_##suffix(float a, float b) { return a - b; }                \
  inline float __fmul_##suffix(float a, float b) { return a * b; }                \
  inline float __fdiv_##suffix(float a, float b) { return a / b; }                \
  inline float __fmaf_##suffix(float a, float b, float c) { return fmaf(a, b, c); } \
  inline float __frcp_##suffix(float a) { return 1.0f / a; }                      \
  inline float __fsqrt_##suffix(float a) { return sqrtf(a); }                     \
  inline double __dadd_##suffix(double a, double b) { return a + b; }             \
  inline double __dsub_##suffix(double a, double b) { return a - b; }             \
  inline double __dmul_##suffix(double a, double b) { return a * b; }             \
  inline double __ddiv_##suffix(double a, double b) { return a / b; }             \
  inline double __fma_##suffix(double a, double b, double c) { return fma(a, b, c); }
SIMT_ROUNDED(rn)
SIMT_ROUNDED(rz)
SIMT_ROUNDED(rd)
SIMT_ROUNDED(ru)
#undef SIMT_ROUNDED
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }

#define SIMT_FLOAT_TO(name, T)                                                           \
  inline T __float2##name##_rn(float x) { return static_cast<T>(nearbyintf(x)); }        \
  inline T __float2##name##_rz(float x) { return static_cast<T>(x); }                    \
  inline T __float2##name##_rd(float x) { return static_cast<T>(floorf(x)); }            \
  inline T __float2##name##_ru(float x) { return static_cast<T>(ceilf(x)); }             \
  inline T __double2##name##_rn(double x) { return static_cast<T>(nearbyint(x)); }       \
  inline T __double2##name##_rz(double x) { return static_cast<T>(x); }                  \
  inline T __double2##name##_rd(double x) { return static_cast<T>(floor(x)); }           \
  inline T __double2##name##_ru(double x) { return static_cast<T>(ceil(x)); }            \
  inline float __##name##2float_rn(T x) { return static_cast<float>(x); }                \
  inline float __##name##2float_rz(T x) { return static_cast<float>(x); }                \
  inline double __##name##2double_rn(T x) { return static_cast<double>(x); }
SIMT_FLOAT_TO(int, int)
SIMT_FLOAT_TO(uint, unsigned)
SIMT_FLOAT_TO(ll, long long)
SIMT_FLOAT_TO(ull, unsigned long long)
#undef SIMT_FLOAT_TO
inline float __double2float_rn(double x) { return static_cast<float>(x); }

#define SIMT_MIN_MAX(T)                               \
  inline T min(T a, T b) { return b < a ? b : a; }    \
  inline T max(T a, T b) { return a < b ? b : a; }
SIMT_MIN_MAX(int)
SIMT_MIN_MAX(unsigned)
SIMT_MIN_MAX(long)
SIMT_MIN_MAX(unsigned long)
SIMT_MIN_MAX(long long)
SIMT_MIN_MAX(unsigned long long)
#undef SIMT_MIN_MAX
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

namespace simt {
template <class A, class B>
using MixedNumber =
    std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>,
                     std::common_type_t<A, B>>;
}
template <class A, class B>
inline simt::MixedNumber<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return min(static_cast<C>(a), static_cast<C>(b));
}
template <class A, class B>
inline simt::MixedNumber<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return max(static_cast<C>(a), static_cast<C>(b));
}
inline int umin(int a, int b) { return unsigned(a) < unsigned(b) ? a : b; }
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
inline long long llmin(long long a, long long b) { return a < b ? a : b; }
inline long long llmax(long long a, long long b) { return a < b ? b : a; }
