// Vectors of 128 bits: what compilers express on every processor.
#pragma once

#include "pairs.h"

namespace forerun {

// what one register holds
using FloatPiece = float __attribute__((vector_size(16)));
using IntPiece = int32_t __attribute__((vector_size(16)));
using BytePiece = uint8_t __attribute__((vector_size(16)));

inline FloatPiece floats(IntPiece x) { return __builtin_convertvector(x, FloatPiece); }
inline float sum(FloatPiece x) { return (x[0] + x[2]) + (x[1] + x[3]); }
inline int32_t sum(IntPiece x) { return x[0] + x[1] + x[2] + x[3]; }
inline float top(FloatPiece x) {
  const float even = x[0] > x[2] ? x[0] : x[2], odd = x[1] > x[3] ? x[1] : x[3];
  return even > odd ? even : odd;
}
// The low 8 bits.
inline void store_bytes(int8_t* to, IntPiece x) {
  for (int i = 0; i < 4; i++) to[i] = int8_t(x[i]);
}
// 4-bit halves of a piece of codes
inline BytePiece low_halves(BytePiece x) { return x & uint8_t(15); }
inline BytePiece high_halves(BytePiece x) { return x >> 4; }

}  // namespace forerun
