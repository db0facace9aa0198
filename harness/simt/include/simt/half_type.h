// One 16-bit floating type H, its pair H2, and the intrinsics they share. Included twice.
// Arithmetic is done in fp32 and rounded once, which is what a scalar fp16 or bf16 unit gives.
#ifndef SIMT_H
#error "define SIMT_H, SIMT_H2, SIMT_TO and SIMT_FROM first"
#endif

struct alignas(2) SIMT_H {
  unsigned short __x;
  SIMT_H() = default;
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  SIMT_H(T v) : __x(SIMT_TO(static_cast<float>(v))) {}
  // torch's own 16-bit types, told by their tag
  template <class T, class = typename T::from_bits_t, int = 0>
  SIMT_H(const T& v) : __x(SIMT_TO(static_cast<float>(v))) {}
  template <class T, class = typename T::from_bits_t, int = 0>
  operator T() const { return T(SIMT_FROM(__x)); }
  SIMT_H(const simt::RawBits<SIMT_H>& raw) : __x(raw.x) {}
  operator float() const { return SIMT_FROM(__x); }
};
struct alignas(4) SIMT_H2 {
  SIMT_H x, y;
  SIMT_H2() = default;
  SIMT_H2(SIMT_H a, SIMT_H b) : x(a), y(b) {}
};

#define SIMT_BINARY(op)                                                                        \
  inline SIMT_H operator op(SIMT_H a, SIMT_H b) { return SIMT_H(float(a) op float(b)); }       \
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>                          \
  inline SIMT_H operator op(SIMT_H a, T b) { return a op SIMT_H(b); }                          \
  template <class T, class = std::enable_if_t<std::is_integral_v<T>>>                          \
  inline SIMT_H operator op(T a, SIMT_H b) { return SIMT_H(a) op b; }                          \
  inline float operator op(SIMT_H a, float b) { return float(a) op b; }                        \
  inline float operator op(float a, SIMT_H b) { return a op float(b); }                        \
  inline double operator op(SIMT_H a, double b) { return float(a) op b; }                      \
  inline double operator op(double a, SIMT_H b) { return a op float(b); }                      \
  inline SIMT_H& operator op##=(SIMT_H& a, SIMT_H b) { return a = a op b; }                    \
  inline SIMT_H2 operator op(SIMT_H2 a, SIMT_H2 b) { return {a.x op b.x, a.y op b.y}; }        \
  inline SIMT_H2& operator op##=(SIMT_H2& a, SIMT_H2 b) { return a = a op b; }
SIMT_BINARY(+)
SIMT_BINARY(-)
SIMT_BINARY(*)
SIMT_BINARY(/)
#undef SIMT_BINARY
#define SIMT_COMPARE(op, name)                                                      \
  inline bool operator op(SIMT_H a, SIMT_H b) { return float(a) op float(b); }      \
  inline bool name(SIMT_H a, SIMT_H b) { return float(a) op float(b); }             \
  inline SIMT_H2 name##2(SIMT_H2 a, SIMT_H2 b) {                                    \
    return {SIMT_H(a.x op b.x ? 1.f : 0.f), SIMT_H(a.y op b.y ? 1.f : 0.f)};        \
  }
SIMT_COMPARE(<, __hlt)
SIMT_COMPARE(>, __hgt)
SIMT_COMPARE(<=, __hle)
SIMT_COMPARE(>=, __hge)
SIMT_COMPARE(==, __heq)
SIMT_COMPARE(!=, __hne)
#undef SIMT_COMPARE
inline SIMT_H operator-(SIMT_H a) {
  a.__x ^= 0x8000;
  return a;
}
inline SIMT_H2 operator-(SIMT_H2 a) { return {-a.x, -a.y}; }
inline SIMT_H __hneg(SIMT_H a) { return -a; }
inline SIMT_H2 __hneg2(SIMT_H2 a) { return -a; }
inline SIMT_H __habs(SIMT_H a) {
  a.__x &= 0x7fff;
  return a;
}
inline SIMT_H2 __habs2(SIMT_H2 a) { return {__habs(a.x), __habs(a.y)}; }
inline bool __hisnan(SIMT_H a) { return float(a) != float(a); }
inline int __hisinf(SIMT_H a) { return std::isinf(float(a)) ? (float(a) < 0 ? -1 : 1) : 0; }

#define SIMT_PAIRED(name, expression)                                            \
  inline SIMT_H name(SIMT_H a, SIMT_H b) { return expression; }                  \
  inline SIMT_H2 name##2(SIMT_H2 a, SIMT_H2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
SIMT_PAIRED(__hadd, a + b)
SIMT_PAIRED(__hsub, a - b)
SIMT_PAIRED(__hmul, a* b)
SIMT_PAIRED(__hadd_rn, a + b)
SIMT_PAIRED(__hsub_rn, a - b)
SIMT_PAIRED(__hmul_rn, a* b)
SIMT_PAIRED(__hadd_sat, SIMT_H(__saturatef(float(a) + float(b))))
SIMT_PAIRED(__hmax, SIMT_H(fmaxf(float(a), float(b))))
SIMT_PAIRED(__hmin, SIMT_H(fminf(float(a), float(b))))
SIMT_PAIRED(__hmax_nan, __hisnan(a) ? a : __hisnan(b) ? b : __hmax(a, b))
SIMT_PAIRED(__hmin_nan, __hisnan(a) ? a : __hisnan(b) ? b : __hmin(a, b))
#undef SIMT_PAIRED
inline SIMT_H __hdiv(SIMT_H a, SIMT_H b) { return a / b; }
inline SIMT_H2 __h2div(SIMT_H2 a, SIMT_H2 b) { return a / b; }
inline SIMT_H max(SIMT_H a, SIMT_H b) { return __hmax(a, b); }
inline SIMT_H min(SIMT_H a, SIMT_H b) { return __hmin(a, b); }
inline SIMT_H __hfma(SIMT_H a, SIMT_H b, SIMT_H c) {
  return SIMT_H(float(double(float(a)) * double(float(b)) + double(float(c))));
}
inline SIMT_H2 __hfma2(SIMT_H2 a, SIMT_H2 b, SIMT_H2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline SIMT_H __hfma_relu(SIMT_H a, SIMT_H b, SIMT_H c) { return __hmax(__hfma(a, b, c), SIMT_H(0)); }

#define SIMT_UNARY(name, f)                                    \
  inline SIMT_H h##name(SIMT_H a) { return SIMT_H(f); }        \
  inline SIMT_H2 h2##name(SIMT_H2 a) { return {h##name(a.x), h##name(a.y)}; }
SIMT_UNARY(exp, expf(float(a)))
SIMT_UNARY(exp2, exp2f(float(a)))
SIMT_UNARY(log, logf(float(a)))
SIMT_UNARY(log2, log2f(float(a)))
SIMT_UNARY(sqrt, sqrtf(float(a)))
SIMT_UNARY(rsqrt, 1.0f / sqrtf(float(a)))
SIMT_UNARY(rcp, 1.0f / float(a))
SIMT_UNARY(sin, sinf(float(a)))
SIMT_UNARY(cos, cosf(float(a)))
SIMT_UNARY(tanh, tanhf(float(a)))
SIMT_UNARY(ceil, ceilf(float(a)))
SIMT_UNARY(floor, floorf(float(a)))
SIMT_UNARY(trunc, truncf(float(a)))
SIMT_UNARY(rint, rintf(float(a)))
#undef SIMT_UNARY
inline float __low2float(SIMT_H2 h) { return float(h.x); }
inline float __high2float(SIMT_H2 h) { return float(h.y); }
inline SIMT_H2 __lowhigh2highlow(SIMT_H2 h) { return {h.y, h.x}; }
inline bool __hbeq2(SIMT_H2 a, SIMT_H2 b) { return a.x == b.x && a.y == b.y; }

inline SIMT_H2 atomicAdd(SIMT_H2* p, SIMT_H2 v, SIMT_SITE) {
  return simt::atomic_update(p, [v](SIMT_H2 old) { return old + v; }, SIMT_HERE("atomicAdd"));
}
