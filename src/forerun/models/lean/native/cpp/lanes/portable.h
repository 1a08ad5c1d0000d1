// Any processor: no instruction is named here.
#pragma once

#include "fours.h"

namespace forerun {

// Rounded once, as by one instruction. In double only the sum rounds; where that leaves a float's middle, the sum's error says
// to which side of it the exact value lies.
inline float fma(float a, float b, float c) {
  const double product = double(a) * double(b), sum = product + double(c);
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof bits);
  const bool middle = (bits & 0x1fffffff) == 0x10000000, tiny = (bits << 1) < (uint64_t(1023 - 126) << 53);
  if (!middle && !tiny) return float(sum);
  const double other = sum - product, error = (product - (sum - other)) + (double(c) - other);
  if (!(error > 0 || error < 0) || bits & 1) return float(sum);
  bits += (error > 0) == (sum > 0) ? 1 : -1;
  double odd;
  std::memcpy(&odd, &bits, sizeof odd);
  return float(odd);
}
inline FloatPiece fma(FloatPiece a, FloatPiece b, FloatPiece c) {
  return FloatPiece{fma(a[0], b[0], c[0]), fma(a[1], b[1], c[1]), fma(a[2], b[2], c[2]), fma(a[3], b[3], c[3])};
}

// to the nearest, below 2^22
inline IntPiece rounded(FloatPiece x) {
  const FloatPiece shift = FloatPiece{} + 12582912.f;
  return __builtin_convertvector((x + shift) - shift, IntPiece);
}

inline IntPiece dot(IntPiece sum, BytePiece w, const int8_t* x) {
  const IntPiece fours = (IntPiece)w;
  for (int i = 0; i < 4; i++) sum += ((fours >> (8 * i)) & 255) * int32_t(x[i]);
  return sum;
}

// Codes of 8 bits, and what they are above their meaning.
constexpr int32_t BYTES_ABOVE = 128;
inline BytePiece byte_codes(BytePiece x) { return x; }

}  // namespace forerun

#include "quarters.h"
