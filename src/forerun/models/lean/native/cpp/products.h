// Products of quantised rows with packed weights. A load of weights serves all rows of a chunk. Integer sums are exact and
// every float sum runs group by group, so a row's results don't depend on the rows beside it.
#pragma once

#include "dots.h"

namespace forerun {

constexpr size_t INT4_CODES = LANES * GROUP / 2;
constexpr size_t INT4_GROUP = INT4_CODES + 4 * LANES;  // codes, then scales and offsets
constexpr size_t INT8_GROUP = LANES * GROUP;

inline int blocks_of(const Matrix& w) { return (w.features + LANES - 1) / LANES; }
inline size_t group_bytes(const Matrix& w) { return w.bits == 4 ? INT4_GROUP : INT8_GROUP; }
// the last one of 8-bit codes may be filled up
inline int groups_of(const Matrix& w) { return (w.columns + GROUP - 1) / GROUP; }
inline size_t block_bytes(const Matrix& w) {
  if (w.bits >= 16) return size_t(w.bits == 32 ? w.columns : (w.columns + 1) / 2) * 4 * LANES;
  return size_t(groups_of(w)) * group_bytes(w) + (w.bits == 4 ? 0 : 4 * LANES);
}
inline const uint8_t* block_of(const Matrix& w, int block) { return w.data + block * block_bytes(w); }

inline void fetch(const uint8_t* from, int bytes) {
  for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + line);
}

constexpr int UNROLLED = PIECES == 2 ? 2 : 1;  // four would take a minute to compile

// What M rows by B blocks have added up so far, in the pieces that registers hold.
template <int M, int B>
struct Totals {
  FloatPiece of[PIECES][B][M] = {};
  Floats whole(int m, int b) const {
    if constexpr (PIECES == 1) return (Floats)of[0][b][m];
    float lanes[LANES];
    for (int p = 0; p < PIECES; p++) Access<FloatPiece>::store(lanes + p * LANES / PIECES, of[p][b][m]);
    return load(lanes);
  }
};

// Hides that an address is still the same: what was read from it for one piece would else be kept for the next, on the stack.
template <class T>
inline const T* anew(const T* address) {
  if constexpr (PIECES > 1) asm("" : "+r"(address));
  return address;
}

inline BytePiece piece_at(const uint8_t* from, int piece) { return Access<BytePiece>::load(from + piece * sizeof(BytePiece)); }

// Of a piece of a group's rows: value = scale * (code - 8, or code where the matrix holds halves) + offset.
struct Grid {
  FloatPiece scale, offset;
};
template <bool HALVES>
inline Grid grid_of(const uint8_t* group, int piece) {
  const uint8_t* from = group + INT4_CODES;
  if constexpr (HALVES) {
    from += piece * sizeof(FloatPiece) / 2;
    return {float16s(from), float16s(from + 2 * LANES)};
  }
  const IntPiece pair = (IntPiece)piece_at(from, piece);
  return {(FloatPiece)(pair << 16), (FloatPiece)(pair & int32_t(0xffff0000))};
}

inline FloatPiece scaled(float x, FloatPiece y) { return Access<FloatPiece>::all(x) * y; }

// M rows by B blocks, which share the loads of activations. A group is 4 x 64 bytes: each lane 4 columns in the low halves,
// the columns 16 further in the high ones. Meanwhile `step` bytes a group are fetched from `next` on.
template <int M, int B, int TERMS, bool HALVES>
void int4_blocks(const uint8_t* w, size_t apart, const Group<TERMS>* a, int groups, const uint8_t* next, int step,
                 Floats (*y)[B]) {
  Totals<M, B> totals;
  for (int g = 0; g < groups; g++, w += INT4_GROUP, a += M, next += step) {
    fetch(next, step);
#pragma GCC unroll UNROLLED
    for (int p = 0; p < PIECES; p++) {
      a = anew(a);
      HalfSums<TERMS> sums[B][M];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
#pragma GCC unroll 2
        for (int b = 0; b < B; b++) sums[b][m].begin(HALVES ? 0 : a[m].zero4);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++) {
        BytePiece one[B], two[B];
#pragma GCC unroll 2
        for (int b = 0; b < B; b++) {
          const BytePiece both = piece_at(w + b * apart + 64 * j, p);
          one[b] = low_halves(both), two[b] = high_halves(both);
        }
#pragma GCC unroll 8
        for (int m = 0; m < M; m++)
#pragma GCC unroll 2
          for (int b = 0; b < B; b++) sums[b][m].add(one[b], two[b], a[m], j);
      }
#pragma GCC unroll 2
      for (int b = 0; b < B; b++) {
        const Grid grid = grid_of<HALVES>(w + b * apart, p);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
          const FloatPiece part = scaled(a[m].scale, floats(sums[b][m].whole(HALVES ? 0 : a[m].zero4)));
          FloatPiece& f = totals.of[p][b][m];
          f = fma(grid.offset, Access<FloatPiece>::all(a[m].total), fma(part, grid.scale, f));
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 2
    for (int b = 0; b < B; b++) y[m][b] = totals.whole(m, b);
}

// The same of codes + 128: 8 x 64 bytes a group, after the last group 16 scales.
template <int M, int B, int TERMS>
void int8_blocks(const uint8_t* w, size_t apart, const Group<TERMS>* a, int groups, const uint8_t* next, int step,
                 Floats (*y)[B]) {
  Totals<M, B> totals;
  for (int g = 0; g < groups; g++, w += INT8_GROUP, a += M, next += step) {
    fetch(next, step);
#pragma GCC unroll UNROLLED
    for (int p = 0; p < PIECES; p++) {
      a = anew(a);
      ByteSums<TERMS> sums[B][M];
#pragma GCC unroll 8
      for (int m = 0; m < M; m++)
#pragma GCC unroll 2
        for (int b = 0; b < B; b++) sums[b][m].begin(a[m]);
#pragma GCC unroll 8
      for (int j = 0; j < 8; j++) {
        BytePiece code[B];
#pragma GCC unroll 2
        for (int b = 0; b < B; b++) code[b] = byte_codes(piece_at(w + b * apart + 64 * j, p));
#pragma GCC unroll 8
        for (int m = 0; m < M; m++)
#pragma GCC unroll 2
          for (int b = 0; b < B; b++) sums[b][m].add(code[b], a[m], j);
      }
#pragma GCC unroll 2
      for (int b = 0; b < B; b++)
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
          FloatPiece& f = totals.of[p][b][m];
          f = fma(floats(sums[b][m].whole()), Access<FloatPiece>::all(a[m].scale), f);
        }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; m++)
#pragma GCC unroll 2
    for (int b = 0; b < B; b++) y[m][b] = totals.whole(m, b) * load(reinterpret_cast<const float*>(w + b * apart));
}

template <int M, int B, int TERMS, class Take>
inline void chunk_of_rows(const Matrix& w, int block, int row, const Group<TERMS>* a, const uint8_t* next, int step,
                          const Take& take) {
  Floats y[M][B];
  const size_t apart = block_bytes(w);
  const auto blocks = w.bits == 8 ? int8_blocks<M, B, TERMS>
                      : w.halves  ? int4_blocks<M, B, TERMS, true>
                                  : int4_blocks<M, B, TERMS, false>;
  blocks(block_of(w, block), apart, a, groups_of(w), next, step, y);
  for (int b = 0; b < B; b++) {
    const Floats bias = w.bias ? load(w.bias + (block + b) * LANES) : Floats{};
    for (int m = 0; m < M; m++) take(block + b, row + m, w.bias ? y[m][b] + bias : y[m][b]);
  }
}

template <int B, int TERMS, class Take>
inline void rows_by_chunks(const Matrix& w, int block, const Group<TERMS>* a, const Chunks& chunks, const uint8_t* next,
                           const Take& take) {
  const int groups = groups_of(w);
  // all chunks together fetch as much as they read
  const int step = (int(group_bytes(w)) * B / chunks.count + 63) / 64 * 64;
  for (int c = 0; c < chunks.count; c++, next += size_t(step) * groups) {
    const int row = chunks.first(c);
    const Group<TERMS>* own = a + size_t(row) * groups;
    switch (chunks.size(c)) {
      case 1: chunk_of_rows<1, B, TERMS>(w, block, row, own, next, step, take); break;
      case 2: chunk_of_rows<2, B, TERMS>(w, block, row, own, next, step, take); break;
      case 3: chunk_of_rows<3, B, TERMS>(w, block, row, own, next, step, take); break;
      case 4: chunk_of_rows<4, B, TERMS>(w, block, row, own, next, step, take); break;
      case 5: chunk_of_rows<5, B, TERMS>(w, block, row, own, next, step, take); break;
      case 6: chunk_of_rows<6, B, TERMS>(w, block, row, own, next, step, take); break;
    }
  }
}

// Blocks first..last for all rows: 16 results at a time are given to take(block, row, y). then: what is read after them.
template <int TERMS, class Take>
inline void product(const Matrix& w, int first, int last, const uint8_t* then, const Group<TERMS>* a,
                    const Chunks& chunks, const Take& take) {
  if (!chunks.count) return;
  for (int block = first; block < last;) {
    const bool pair = MOST_BLOCKS == 2 && last - block >= 2;
    const int after = block + (pair ? 2 : 1);
    const uint8_t* next = after < last ? block_of(w, after) : then;
    if (pair)
      rows_by_chunks<2, TERMS>(w, block, a, chunks, next, take);
    else
      rows_by_chunks<1, TERMS>(w, block, a, chunks, next, take);
    block = after;
  }
}

}  // namespace forerun
