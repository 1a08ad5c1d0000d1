// Finite float16 numbers, a register of them, where no instruction reads them. The number is exact.
#pragma once

namespace forerun {

// What a float's bits stand for when a float16's are put in their places is 2^-112 of the number.
inline float float16(uint16_t x) {
  const uint32_t size_bits = uint32_t(x & 0x7fff) << 13;
  float size;
  std::memcpy(&size, &size_bits, sizeof size);
  size *= 0x1p112f;
  return x & 0x8000 ? -size : size;
}

#if !defined(__AVX512VNNI__)
inline FloatPiece float16s(const uint8_t* from) {
  constexpr int COUNT = sizeof(FloatPiece) / sizeof(float);
  uint16_t narrow[COUNT];
  std::memcpy(narrow, from, sizeof narrow);
  IntPiece x;
  for (int i = 0; i < COUNT; i++) x[i] = narrow[i];
  const FloatPiece size = (FloatPiece)((x & 0x7fff) << 13) * 0x1p112f;
  return (FloatPiece)((IntPiece)size | (x & 0x8000) << 16);
}
#endif

}  // namespace forerun
