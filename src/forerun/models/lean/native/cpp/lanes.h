// Vectors of 16 lanes, in what registers this library's instruction set has. All sets give the same bits: sums of lanes run in
// one order, fma rounds once, and products of codes are exact integers.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "lanes/avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "lanes/avx2.h"
#elif defined(__aarch64__)
#include "lanes/neon.h"
#else
#include "lanes/portable.h"
#endif

#include "lanes/halves.h"

namespace forerun {

static_assert(sizeof(Floats) == 64 && sizeof(Ints) == 64 && sizeof(Bytes) == 64 && sizeof(float) * LANES == 64);

constexpr int PIECES = sizeof(Floats) / sizeof(FloatPiece);  // registers of 16 lanes

inline Floats largest(Floats a, Floats b) { return where(a > b, a, b); }
inline Floats smallest(Floats a, Floats b) { return where(a < b, a, b); }
inline Floats absolute(Floats x) { return (Floats)((Ints)x & 0x7fffffff); }

}  // namespace forerun
