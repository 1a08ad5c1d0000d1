// Products of float rows with weights in float32 or bfloat16. Every result is one sum in the order of the columns, so it
// doesn't depend on what is computed beside it.
#pragma once

#include "products.h"

namespace forerun {

// Rows and blocks that share loads, as registers allow.
#if defined(__AVX512F__)
constexpr int DENSE_ROWS = 6, DENSE_BLOCKS = 4;
#else
constexpr int DENSE_ROWS = 4, DENSE_BLOCKS = 1;
#endif
constexpr int AHEAD = 2048;          // bytes of each block that are fetched before one chunk of rows needs them
constexpr size_t KEPT = 512u << 10;  // what the second cache surely holds until it is read

// What is multiplied: floats with float32 or bfloat16, or pairs of bfloat16 with such.
enum Factors { FLOATS_32, FLOATS_16, PAIRS_16 };

// Blocks of weights for one chunk of rows, `apart` bytes from each other, with `lines` of 64 bytes: one column in float32,
// two in bfloat16 (the first in a lane's low half). Meanwhile as many lines of `fetched` blocks are fetched from `next` on, or
// where it is null of the blocks themselves, some lines ahead.
struct Panel {
  const uint8_t* w;
  size_t apart;
  int lines;
  const uint8_t* next;
  int fetched;

  template <int B>
  void fetch(const uint8_t* w, int line) const {
    if (!next) {
#pragma GCC unroll 4
      for (int b = 0; b < B; b++) __builtin_prefetch(w + b * apart + AHEAD);
      return;
    }
    for (int i = 0; i < fetched; i++) __builtin_prefetch(next + size_t(i) * apart + size_t(line) * 64);
  }
};

template <int M, int B>
inline void multiply(const Floats (&w)[B], const float* a, size_t stride, Floats (&y)[M][B]) {
#pragma GCC unroll 8
  for (int m = 0; m < M; m++) {
    const Floats x = all(a[m * stride]);
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) y[m][b] = fma(w[b], x, y[m][b]);
  }
}

template <int M, int B, Factors FACTORS>
void float_blocks(const Panel& p, const float* a, size_t stride, Floats (&y)[M][B]) {
  Floats own[M][B];
  for (auto& row : own)
    for (auto& lanes : row) lanes = Floats{};
  const uint8_t* w = p.w;
  for (int line = 0; line < p.lines; line++, w += 64) {
    p.fetch<B>(w, line);
    Floats first[B], second[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) {
      const Ints both = (Ints)codes(w + b * p.apart);
      first[b] = (Floats)(FACTORS == FLOATS_16 ? both << 16 : both);
      if constexpr (FACTORS == FLOATS_16) second[b] = (Floats)(both & int32_t(0xffff0000));
    }
    multiply<M, B>(first, a, stride, own);
    if constexpr (FACTORS == FLOATS_16) multiply<M, B>(second, a + 1, stride, own);
    a += FACTORS == FLOATS_16 ? 2 : 1;
  }
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) y[m][b] = own[m][b];
}

#if defined(__AVX512VNNI__)

// Asked when it runs: processors have the instruction or not within one level.
inline bool has_bf16() {
  static const bool has = __builtin_cpu_supports("avx512bf16");
  return has;
}

// Two columns at a time of rows in bfloat16.
template <int M, int B>
__attribute__((target("avx512bf16"))) void pair_blocks(const Panel& p, const float* a, size_t stride, Floats (&y)[M][B]) {
  __m512 own[M][B];
  for (auto& row : own)
    for (auto& lanes : row) lanes = _mm512_setzero_ps();
  const uint8_t* w = p.w;
  for (int line = 0; line < p.lines; line++, w += 64, a++) {
    p.fetch<B>(w, line);
    __m512bh pairs[B];
#pragma GCC unroll 4
    for (int b = 0; b < B; b++) pairs[b] = (__m512bh)_mm512_load_si512(w + b * p.apart);
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) {
      const __m512bh x = (__m512bh)_mm512_set1_ps(a[m * stride]);
#pragma GCC unroll 4
      for (int b = 0; b < B; b++) own[m][b] = _mm512_dpbf16_ps(own[m][b], pairs[b], x);
    }
  }
  for (int m = 0; m < M; m++)
    for (int b = 0; b < B; b++) y[m][b] = (Floats)own[m][b];
}

// Two times 16 columns of a row, to the nearest bfloat16.
__attribute__((target("avx512bf16"))) inline void store_bf16(float* to, Floats a, Floats b) {
  const __m512bh both = _mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
  std::memcpy(to, &both, sizeof both);
}

#else

inline bool has_bf16() { return false; }
template <int M, int B>
void pair_blocks(const Panel&, const float*, size_t, Floats (&)[M][B]) {}
inline void store_bf16(float*, Floats, Floats) {}

#endif

template <int M, int B, Factors FACTORS, class Take>
inline void dense_chunk(const Matrix& w, const Panel& panel, int block, int row, const float* a, size_t stride,
                        const Take& take) {
  Floats y[M][B];
  if constexpr (FACTORS == PAIRS_16)
    pair_blocks<M, B>(panel, a, stride, y);
  else
    float_blocks<M, B, FACTORS>(panel, a, stride, y);
  for (int b = 0; b < B; b++) {
    const Floats bias = w.bias ? load(w.bias + (block + b) * LANES) : Floats{};
    for (int m = 0; m < M; m++) take(block + b, row + m, w.bias ? y[m][b] + bias : y[m][b]);
  }
}

// What a chunk of rows reads, and fetches: a single chunk what itself needs soon, one of several its share of what comes
// next.
template <int B>
inline Panel panel_of(const Matrix& w, int block, int chunk, int chunks, const uint8_t* next) {
  const size_t apart = block_bytes(w);
  const uint8_t* own = block_of(w, block);
  if (chunks == 1 || apart * B > KEPT) return {own, apart, int(apart / 64), nullptr, 0};
  const int share = (B + chunks - 1) / chunks, left = B - chunk * share;
  return {own, apart, int(apart / 64), next + chunk * share * apart, left < share ? left : share};
}

template <int B, Factors FACTORS, class Take>
inline void dense_rows(const Matrix& w, int block, const uint8_t* next, const float* a, size_t stride,
                       const Chunks& chunks, const Take& take) {
  for (int c = 0; c < chunks.count; c++) {
    const Panel panel = panel_of<B>(w, block, c, chunks.count, next);
    const int row = chunks.first(c);
    const float* own = a + row * stride;
    switch (chunks.size(c)) {
      case 1: dense_chunk<1, B, FACTORS>(w, panel, block, row, own, stride, take); break;
      case 2: dense_chunk<2, B, FACTORS>(w, panel, block, row, own, stride, take); break;
      case 3: dense_chunk<3, B, FACTORS>(w, panel, block, row, own, stride, take); break;
      case 4: dense_chunk<4, B, FACTORS>(w, panel, block, row, own, stride, take); break;
      case 5: dense_chunk<5, B, FACTORS>(w, panel, block, row, own, stride, take); break;
      case 6: dense_chunk<6, B, FACTORS>(w, panel, block, row, own, stride, take); break;
    }
  }
}

// Blocks first..last for all rows, which lie `stride` floats apart. then: what is read after them.
template <Factors FACTORS, class Take>
inline void dense_product(const Matrix& w, int first, int last, const uint8_t* then, const float* a, size_t stride,
                          const Chunks& chunks, const Take& take) {
  for (int block = first; block < last;) {
    const bool many = last - block >= DENSE_BLOCKS;
    const int after = block + (many ? DENSE_BLOCKS : 1);
    const uint8_t* next = after < last ? block_of(w, after) : then;
    if (many)
      dense_rows<DENSE_BLOCKS, FACTORS>(w, block, next, a, stride, chunks, take);
    else
      dense_rows<1, FACTORS>(w, block, next, a, stride, chunks, take);
    block = after;
  }
}

}  // namespace forerun
