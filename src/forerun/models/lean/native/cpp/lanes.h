// Vectors of 16 lanes. The compiler splits them where the processor's are shorter; what it can't express well is written out
// for each instruction set. Sums of lanes run in one fixed order, and fma is either fused everywhere or nowhere.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace forerun {

constexpr int LANES = 16;

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Bytes = uint8_t __attribute__((vector_size(64)));
using LooseFloats = float __attribute__((vector_size(64), aligned(4), may_alias));

inline Floats load(const float* from) { return *reinterpret_cast<const LooseFloats*>(from); }
inline void store(float* to, Floats x) { *reinterpret_cast<LooseFloats*>(to) = x; }
inline Floats all(float x) { return Floats{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline Ints all(int32_t x) { return Ints{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
inline Floats largest(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smallest(Floats a, Floats b) { return a < b ? a : b; }
inline Floats absolute(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }
inline Floats floats(Ints x) { return __builtin_convertvector(x, Floats); }

// What a load of 64 bytes of codes gives, and its 4-bit halves.
inline Bytes codes(const uint8_t* from) { return *reinterpret_cast<const Bytes*>(from); }

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

inline Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline Ints rounded(Floats x) { return (Ints)_mm512_cvtps_epi32((__m512)x); }
inline float sum(Floats x) { return _mm512_reduce_add_ps((__m512)x); }
inline int32_t sum(Ints x) { return _mm512_reduce_add_epi32((__m512i)x); }
inline float top(Floats x) { return _mm512_reduce_max_ps((__m512)x); }
inline void store_bytes(int8_t* to, Ints x) { _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8((__m512i)x)); }
inline Bytes low_halves(Bytes x) { return (Bytes)_mm512_and_si512((__m512i)x, _mm512_set1_epi8(15)); }
inline Bytes high_halves(Bytes x) {
  return (Bytes)_mm512_and_si512(_mm512_srli_epi16((__m512i)x, 4), _mm512_set1_epi8(15));
}
// Each lane: sum + its 4 codes times 4 signed bytes at x. Halves are codes of 4 bits.
inline Ints dot_halves(Ints sum, Bytes w, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(four));
}
inline Ints dot_bytes(Ints sum, Bytes w, const int8_t* x) { return dot_halves(sum, w, x); }
inline Floats float16s(const uint8_t* from) { return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from)); }

#else

inline float sum(Floats x) {
  float lanes[LANES];
  std::memcpy(lanes, &x, sizeof lanes);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}
inline int32_t sum(Ints x) {
  int32_t total = 0;
  for (int i = 0; i < LANES; i++) total += x[i];
  return total;
}
inline float top(Floats x) {
  float best = x[0];
  for (int i = 1; i < LANES; i++) best = x[i] > best ? x[i] : best;
  return best;
}
// to the nearest, below 2^22
inline Ints rounded(Floats x) {
  const Floats shift = all(12582912.f);
  return __builtin_convertvector((x + shift) - shift, Ints);
}
inline void store_bytes(int8_t* to, Ints x) {
  for (int i = 0; i < LANES; i++) to[i] = int8_t(x[i]);
}
// finite ones: their bits in float32's places stand for 2^-112 of the number
inline Floats float16s(const uint8_t* from) {
  uint16_t narrow[LANES];
  std::memcpy(narrow, from, sizeof narrow);
  Ints x;
  for (int i = 0; i < LANES; i++) x[i] = narrow[i];
  const Floats size = (Floats)((x & 0x7fff) << 13) * all(0x1p112f);
  return (Floats)((Ints)size | (x & 0x8000) << 16);
}
inline Bytes low_halves(Bytes x) { return x & 15; }
inline Bytes high_halves(Bytes x) { return x >> 4; }

#if defined(__AVX2__) && defined(__FMA__)

inline Floats fma(Floats a, Floats b, Floats c) {
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof x), std::memcpy(y, &b, sizeof y), std::memcpy(z, &c, sizeof z);
  for (int i = 0; i < 2; i++) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
  std::memcpy(&c, z, sizeof z);
  return c;
}
inline Ints dot_halves(Ints sum, Bytes w, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  const __m256i factors = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
  __m256i code[2], total[2];
  std::memcpy(code, &w, sizeof code), std::memcpy(total, &sum, sizeof total);
  for (int i = 0; i < 2; i++)
    total[i] = _mm256_add_epi32(total[i], _mm256_madd_epi16(_mm256_maddubs_epi16(code[i], factors), ones));
  std::memcpy(&sum, total, sizeof total);
  return sum;
}
// in halves, since the 16-bit sums of whole bytes would saturate
inline Ints dot_bytes(Ints sum, Bytes w, const int8_t* x) {
  return dot_halves(sum, low_halves(w), x) + (dot_halves(Ints{}, high_halves(w), x) << 4);
}

#else

inline Floats fma(Floats a, Floats b, Floats c) { return a * b + c; }
inline Ints dot_bytes(Ints sum, Bytes w, const int8_t* x) {
  const Ints fours = (Ints)w;
  for (int i = 0; i < 4; i++) sum += ((fours >> (8 * i)) & 255) * int32_t(x[i]);
  return sum;
}
inline Ints dot_halves(Ints sum, Bytes w, const int8_t* x) { return dot_bytes(sum, w, x); }

#endif
#endif

}  // namespace forerun
