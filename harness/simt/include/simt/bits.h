// Integer intrinsics and reinterpretations.
#pragma once
#include <cstdint>
#include <cstring>

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
  return r;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __fns(unsigned mask, unsigned base, int offset) {
  const int step = offset < 0 ? -1 : 1;
  int left = offset < 0 ? -offset : offset == 0 ? 1 : offset;
  for (int i = int(base); i >= 0 && i < 32; i += step)
    if ((mask >> i & 1) && --left == 0) return i;
  return 0xffffffffu;
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }
inline int __rhadd(int a, int b) {
  return static_cast<int>((static_cast<long long>(a) + b + 1) >> 1);
}
inline unsigned __sad(int a, int b, unsigned c) { return c + (a > b ? a - b : b - a); }
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a > b ? a - b : b - a); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = select >> (4 * i);
    unsigned byte = bytes >> (8 * (s & 7)) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    r |= byte << (8 * i);
  }
  return r;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(hi) << 32 | lo) << (n & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n) {
  return static_cast<unsigned>((static_cast<unsigned long long>(hi) << 32 | lo) >> (n & 31));
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8)
    c += static_cast<int>(static_cast<signed char>(a >> i)) * static_cast<signed char>(b >> i);
  return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
  return c;
}

namespace simt {
template <class To, class From>
To as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &v, sizeof to);
  return to;
}
}  // namespace simt
inline int __float_as_int(float x) { return simt::as<int>(x); }
inline unsigned __float_as_uint(float x) { return simt::as<unsigned>(x); }
inline float __int_as_float(int x) { return simt::as<float>(x); }
inline float __uint_as_float(unsigned x) { return simt::as<float>(x); }
inline long long __double_as_longlong(double x) { return simt::as<long long>(x); }
inline double __longlong_as_double(long long x) { return simt::as<double>(x); }
inline int __double2hiint(double x) { return static_cast<int>(simt::as<long long>(x) >> 32); }
inline int __double2loint(double x) { return static_cast<int>(simt::as<long long>(x)); }
inline double __hiloint2double(int hi, int lo) {
  return simt::as<double>(static_cast<long long>(hi) << 32 | static_cast<unsigned>(lo));
}
