// ARM with 64 bits: four registers of 128 bits, with dot products where the library is for them.
#pragma once

#include <arm_neon.h>

#include "fours.h"

namespace forerun {

inline FloatPiece fma(FloatPiece a, FloatPiece b, FloatPiece c) {
  return (FloatPiece)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
inline IntPiece rounded(FloatPiece x) { return (IntPiece)vcvtnq_s32_f32((float32x4_t)x); }

#if defined(__ARM_FEATURE_DOTPROD)
inline IntPiece dot(IntPiece sum, BytePiece w, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return (IntPiece)vdotq_s32((int32x4_t)sum, (int8x16_t)w, vreinterpretq_s8_s32(vdupq_n_s32(four)));
}
#else
inline IntPiece dot(IntPiece sum, BytePiece w, const int8_t* x) {
  const IntPiece fours = (IntPiece)w;
  for (int i = 0; i < 4; i++) sum += ((fours << (24 - 8 * i)) >> 24) * int32_t(x[i]);
  return sum;
}
#endif

// Codes of 8 bits as dot takes them, which minds their sign.
constexpr int32_t BYTES_ABOVE = 0;
inline BytePiece byte_codes(BytePiece x) { return x ^ uint8_t(128); }

}  // namespace forerun

#include "quarters.h"
