// Built-in vector types with CUDA's alignment, and dim3.
#pragma once

#define SIMT_VECTOR_1(T, N) \
  struct N##1 {             \
    T x;                    \
  };                        \
  constexpr N##1 make_##N##1(T x) { return {x}; }
#define SIMT_VECTOR_2(T, N)                            \
  struct alignas(2 * sizeof(T)) N##2 {                 \
    T x, y;                                            \
  };                                                   \
  constexpr N##2 make_##N##2(T x, T y) { return {x, y}; }
#define SIMT_VECTOR_3(T, N) \
  struct N##3 {             \
    T x, y, z;              \
  };                        \
  constexpr N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }
#define SIMT_VECTOR_4(T, N)                                       \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 {  \
    T x, y, z, w;                                                 \
  };                                                              \
  constexpr N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define SIMT_VECTORS(T, N) \
  SIMT_VECTOR_1(T, N) SIMT_VECTOR_2(T, N) SIMT_VECTOR_3(T, N) SIMT_VECTOR_4(T, N)

SIMT_VECTORS(signed char, char)
SIMT_VECTORS(unsigned char, uchar)
SIMT_VECTORS(short, short)
SIMT_VECTORS(unsigned short, ushort)
SIMT_VECTORS(int, int)
SIMT_VECTORS(unsigned int, uint)
SIMT_VECTORS(long, long)
SIMT_VECTORS(unsigned long, ulong)
SIMT_VECTORS(long long, longlong)
SIMT_VECTORS(unsigned long long, ulonglong)
SIMT_VECTORS(float, float)
SIMT_VECTORS(double, double)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};
