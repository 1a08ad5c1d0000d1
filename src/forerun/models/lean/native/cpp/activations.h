// Rows of a product, quantised by groups of columns to 8 bits, or to 16 as two terms of 8.
#pragma once

#include "lanes.h"
#include "views.h"

namespace forerun {

constexpr int MOST_ROWS[] = {0, 6, 4};  // by terms: rows that share a load of weights, as registers allow
constexpr int MOST_BLOCKS = PIECES == 1 ? 2 : 1;

// x = scale * (hi or 256 * hi + lo); total: the sum of x. zero4 and zero8 take the codes' zero points off integer sums. words:
// x / scale, in the order of store_words.
template <int TERMS>
struct Group {
  int8_t hi[GROUP];
  int8_t lo[TERMS == 2 ? GROUP : 4];
#if defined(FORERUN_WORDS)
  int16_t words[GROUP];
#endif
  float scale, total;
  int32_t zero4, zero8;
};

// How rows are cut into chunks that go through a product together.
struct Chunks {
  int rows, count, each;
  Chunks(int n, int most) : rows(n) {
    count = (n + most - 1) / most;
    each = count ? (n + count - 1) / count : 1;
    count = (n + each - 1) / each;
  }
  int first(int chunk) const { return chunk * each; }
  int size(int chunk) const { return each < rows - chunk * each ? each : rows - chunk * each; }
  // chunk by chunk, then group by group, then row by row
  size_t place(int row, int group, int groups) const {
    const int chunk = row / each;
    return size_t(first(chunk)) * groups + size_t(group) * size(chunk) + (row - first(chunk));
  }
};

template <int TERMS>
inline void quantise(Floats a, Floats b, Group<TERMS>& out) {
  constexpr float TOP = TERMS == 2 ? 32512.f : 127.f;
  const float most = top(largest(absolute(a), absolute(b)));
  const Floats factor = all(most > 0 ? TOP / most : 0.f);
  Ints p = rounded(a * factor), q = rounded(b * factor);
  const int32_t total = sum(p + q);
#if defined(FORERUN_WORDS)
  store_words(out.words, p), store_words(out.words + LANES, q);
#endif
  if constexpr (TERMS == 2) {
    store_bytes(out.lo, p), store_bytes(out.lo + LANES, q);
    p = (p + 128) >> 8, q = (q + 128) >> 8;
  }
  store_bytes(out.hi, p), store_bytes(out.hi + LANES, q);
  out.scale = most / TOP;
  out.total = out.scale * float(total);
  out.zero4 = -8 * total;
  out.zero8 = -BYTES_ABOVE * total;
}

}  // namespace forerun
