// Exact integer sums of one row's group with rows of codes, a register of them: begin, add for all columns, whole.
// Both ends of HalfSums are told what takes the codes' zero points off.
//
// add takes codes, each lane's 4 at columns 4 j.. of the group: of 8 bits (ByteSums), or both halves of codes of 4
// bits (HalfSums), of which the high ones are 16 columns further.
#pragma once

#include "activations.h"

namespace forerun {

#if defined(FORERUN_WORDS)

template <int TERMS>
struct HalfSums {
  WordPiece hi, lo;
  void begin(int32_t) { hi = lo = WordPiece{}; }
  void add(BytePiece low, BytePiece high, const Group<TERMS>& a, int j) {
    hi = dot(dot(hi, low, a.hi + 4 * j), high, a.hi + 16 + 4 * j);
    if constexpr (TERMS == 2) lo = dot(dot(lo, low, a.lo + 4 * j), high, a.lo + 16 + 4 * j);
  }
  IntPiece whole(int32_t zero) const {
    if constexpr (TERMS == 1) return widened(Access<IntPiece>::all(zero), hi, 1);
    return widened(widened(Access<IntPiece>::all(zero), lo, 1), hi, 256);
  }
};

template <int TERMS>
struct ByteSums {
  IntPiece total;
  void begin(const Group<TERMS>& a) { total = Access<IntPiece>::all(a.zero8); }
  void add(BytePiece code, const Group<TERMS>& a, int j) { total = dot(total, code, a.words + 4 * j); }
  IntPiece whole() const { return total; }
};

#else

template <int TERMS>
struct TermSums {
  IntPiece hi, lo;
  void begin(int32_t zero) {
    lo = Access<IntPiece>::all(zero);
    hi = TERMS == 2 ? IntPiece{} : lo;
  }
  void add(BytePiece code, const Group<TERMS>& a, int column) {
    hi = dot(hi, code, a.hi + column);
    if constexpr (TERMS == 2) lo = dot(lo, code, a.lo + column);
  }
  IntPiece whole() const {
    if constexpr (TERMS == 1) return hi;
    return (hi << 8) + lo;
  }
};

template <int TERMS>
struct HalfSums {
  TermSums<TERMS> sums;
  void begin(int32_t zero) { sums.begin(zero); }
  void add(BytePiece low, BytePiece high, const Group<TERMS>& a, int j) { sums.add(low, a, 4 * j), sums.add(high, a, 16 + 4 * j); }
  IntPiece whole(int32_t) const { return sums.whole(); }
};

template <int TERMS>
struct ByteSums {
  TermSums<TERMS> sums;
  void begin(const Group<TERMS>& a) { sums.begin(a.zero8); }
  void add(BytePiece code, const Group<TERMS>& a, int j) { sums.add(code, a, 4 * j); }
  IntPiece whole() const { return sums.whole(); }
};

#endif

}  // namespace forerun
