// Two registers of 256 bits, with VNNI where the library is for it.
#pragma once

#include <immintrin.h>

#include "pairs.h"

namespace forerun {

// what one register holds
using FloatPiece = float __attribute__((vector_size(32)));
using IntPiece = int32_t __attribute__((vector_size(32)));
using BytePiece = uint8_t __attribute__((vector_size(32)));
using Floats = Pair<FloatPiece>;
using Ints = Pair<IntPiece>;
using Bytes = Pair<BytePiece>;

inline Floats load(const float* from) { return Access<Floats>::load(from); }
inline void store(float* to, Floats x) { Access<Floats>::store(to, x); }
inline Floats all(float x) { return {(FloatPiece)_mm256_set1_ps(x), (FloatPiece)_mm256_set1_ps(x)}; }
inline Ints all(int32_t x) { return {(IntPiece)_mm256_set1_epi32(x), (IntPiece)_mm256_set1_epi32(x)}; }
inline FloatPiece floats(IntPiece x) { return __builtin_convertvector(x, FloatPiece); }
inline Floats floats(Ints x) { return {floats(x.a), floats(x.b)}; }

inline FloatPiece fma(FloatPiece a, FloatPiece b, FloatPiece c) {
  return (FloatPiece)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Floats fma(Floats a, Floats b, Floats c) { return {fma(a.a, b.a, c.a), fma(a.b, b.b, c.b)}; }
inline Ints rounded(Floats x) { return {(IntPiece)_mm256_cvtps_epi32((__m256)x.a), (IntPiece)_mm256_cvtps_epi32((__m256)x.b)}; }

inline float sum(FloatPiece x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline int32_t sum(IntPiece x) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}
inline float top(FloatPiece x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline float sum(Floats x) { return sum(x.a + x.b); }
inline int32_t sum(Ints x) { return sum(x.a + x.b); }
inline float top(Floats x) { return top(x.a > x.b ? x.a : x.b); }

// Values within 16 bits.
inline __m256i words_of(Ints x) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)x.a, (__m256i)x.b), 0b11011000);
}
// The low 8 bits of such.
inline void store_bytes(int8_t* to, Ints x) {
  const __m256i bytes = _mm256_and_si256(words_of(x), _mm256_set1_epi16(255));
  _mm_storeu_si128((__m128i*)to, _mm_packus_epi16(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
}

inline Bytes codes(const uint8_t* from) { return Access<Bytes>::load(from); }
// 4-bit halves of a piece of codes
inline BytePiece low_halves(BytePiece x) { return (BytePiece)_mm256_and_si256((__m256i)x, _mm256_set1_epi8(15)); }
inline BytePiece high_halves(BytePiece x) { return low_halves((BytePiece)_mm256_srli_epi16((__m256i)x, 4)); }

// Codes of 8 bits, and what they are above their meaning.
constexpr int32_t BYTES_ABOVE = 128;
inline BytePiece byte_codes(BytePiece x) { return x; }

inline __m256i four_at(const void* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

#if defined(__AVXVNNI__)

// Each lane: sum + its 4 codes times 4 signed bytes at x.
inline IntPiece dot(IntPiece sum, BytePiece w, const int8_t* x) {
  return (IntPiece)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)w, four_at(x));
}

#else
#define FORERUN_WORDS  // sums of codes times activations go through words of 16 bits

using WordPiece = int16_t __attribute__((vector_size(32)));

// The compiler would add up later, with more products at hand than there are registers.
inline __m256i now(__m256i x) {
  asm("" : "+x"(x));
  return x;
}

// Each two columns: sum + codes below 16 times signed bytes at x. Eight of them fit into 16 bits.
inline WordPiece dot(WordPiece sum, BytePiece w, const int8_t* x) {
  return (WordPiece)now(_mm256_add_epi16((__m256i)sum, _mm256_maddubs_epi16((__m256i)w, four_at(x))));
}
// sum + factor times both words of each lane
inline IntPiece widened(IntPiece sum, WordPiece x, int16_t factor) {
  return sum + (IntPiece)_mm256_madd_epi16((__m256i)x, _mm256_set1_epi16(factor));
}
// Each lane: sum + its 4 codes of any size times 4 words at x, of columns 0, 2, 1, 3.
inline IntPiece dot(IntPiece sum, BytePiece w, const int16_t* x) {
  const __m256i even = _mm256_and_si256((__m256i)w, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16((__m256i)w, 8);
  const __m256i first = now(_mm256_add_epi32((__m256i)sum, _mm256_madd_epi16(even, four_at(x))));
  return (IntPiece)now(_mm256_add_epi32(first, _mm256_madd_epi16(odd, four_at(x + 2))));
}
// Values within 16 bits, of each four columns 0, 2, 1, 3.
inline void store_words(int16_t* to, Ints x) {
  constexpr int ORDER = 0b11011000;
  const __m256i words = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(words_of(x), ORDER), ORDER);
  _mm256_storeu_si256((__m256i*)to, words);
}

#endif

}  // namespace forerun
