// fp16 and bf16 bit patterns to and from fp32, round to nearest even.
#pragma once
#include <cstdint>
#include <cstring>

namespace simt {

inline float bits_to_float(uint32_t b) {
  float f;
  memcpy(&f, &b, 4);
  return f;
}
inline uint32_t float_to_bits(float f) {
  uint32_t b;
  memcpy(&b, &f, 4);
  return b;
}

inline float from_bf16(uint16_t h) { return bits_to_float(uint32_t(h) << 16); }
inline uint16_t to_bf16(float f) {
  const uint32_t b = float_to_bits(f);
  if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return uint16_t((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

inline float from_fp16(uint16_t h) {
  const uint32_t w = uint32_t(h) << 16, sign = w & 0x80000000u, two = w + w;
  const float normal = bits_to_float((two >> 4) + (0xe0u << 23)) * bits_to_float(0x7800000u);
  const float tiny = bits_to_float((two >> 17) | (126u << 23)) - 0.5f;
  return bits_to_float(sign | float_to_bits(two < (1u << 27) ? tiny : normal));
}
inline uint16_t to_fp16(float f) {
  const uint32_t b = float_to_bits(f), sign = b >> 16 & 0x8000u, twice = b + b;
  float base = (bits_to_float(b & 0x7fffffffu) * bits_to_float(0x77800000u)) *
               bits_to_float(0x08800000u);
  uint32_t bias = twice & 0xff000000u;
  if (bias < 0x71000000u) bias = 0x71000000u;
  base = bits_to_float((bias >> 1) + 0x07800000u) + base;
  const uint32_t r = float_to_bits(base);
  const uint32_t magnitude = (r >> 13 & 0x7c00u) + (r & 0xfffu);
  return uint16_t(sign | (twice > 0xff000000u ? 0x7fffu : magnitude));
}

}  // namespace simt
