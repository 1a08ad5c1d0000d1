// One register of 512 bits, with VNNI.
#pragma once

#include <immintrin.h>

#include "pairs.h"

namespace forerun {

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Bytes = uint8_t __attribute__((vector_size(64)));
// what one register holds
using FloatPiece = Floats;
using IntPiece = Ints;
using BytePiece = Bytes;
using LooseFloats = float __attribute__((vector_size(64), aligned(4), may_alias));

inline Floats load(const float* from) { return *reinterpret_cast<const LooseFloats*>(from); }
inline void store(float* to, Floats x) { *reinterpret_cast<LooseFloats*>(to) = x; }
inline Floats all(float x) { return (Floats)_mm512_set1_ps(x); }
inline Ints all(int32_t x) { return (Ints)_mm512_set1_epi32(x); }
inline Floats floats(Ints x) { return __builtin_convertvector(x, Floats); }

inline Floats fma(Floats a, Floats b, Floats c) { return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
inline Ints rounded(Floats x) { return (Ints)_mm512_cvtps_epi32((__m512)x); }
inline float sum(Floats x) { return _mm512_reduce_add_ps((__m512)x); }
inline int32_t sum(Ints x) { return _mm512_reduce_add_epi32((__m512i)x); }
inline float top(Floats x) { return _mm512_reduce_max_ps((__m512)x); }
inline void store_bytes(int8_t* to, Ints x) { _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8((__m512i)x)); }

inline Bytes codes(const uint8_t* from) { return *reinterpret_cast<const Bytes*>(from); }
// 4-bit halves of a piece of codes
inline Bytes low_halves(Bytes x) { return (Bytes)_mm512_and_si512((__m512i)x, _mm512_set1_epi8(15)); }
inline Bytes high_halves(Bytes x) {
  return (Bytes)_mm512_and_si512(_mm512_srli_epi16((__m512i)x, 4), _mm512_set1_epi8(15));
}

// Codes of 8 bits, and what they are above their meaning.
constexpr int32_t BYTES_ABOVE = 128;
inline BytePiece byte_codes(BytePiece x) { return x; }

inline Floats float16s(const uint8_t* from) { return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from)); }

// Each lane: sum + its 4 codes times 4 signed bytes at x.
inline Ints dot(Ints sum, Bytes w, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, _mm512_set1_epi32(four));
}

}  // namespace forerun
