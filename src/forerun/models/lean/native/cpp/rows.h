// What is done to single rows: embedding, norms, and turning queries and keys.
#pragma once

#include <cmath>

#include "kept.h"
#include "products.h"

namespace forerun {

inline size_t padded(size_t n) { return (n + LANES - 1) / LANES * LANES; }

// y at first.. of a row that ends at `end`
inline void put(float* row, int first, int end, Floats y) {
  if (first + LANES <= end)
    store(row + first, y);
  else
    std::memcpy(row + first, &y, sizeof(float) * (end - first));
}

// Row `lane` of a block in float32 or bfloat16.
inline void embed_dense(const Matrix& table, int token, float scale, float* x) {
  const int lane = token % LANES;
  const uint8_t* block = block_of(table, token / LANES);
  for (int k = 0; k < table.columns; k++) {
    uint32_t bits;
    std::memcpy(&bits, block + (table.bits == 32 ? k : k / 2) * 4 * LANES + lane * 4, sizeof bits);
    if (table.bits == 16) bits = k % 2 ? bits & 0xffff0000 : bits << 16;
    float own;
    std::memcpy(&own, &bits, sizeof own);
    x[k] = own * scale;
  }
}

// Scale and offset of one row of a group.
inline void read_grid(const uint8_t* from, bool halves, int lane, float* grid) {
  uint16_t both[2];
  if (halves) {
    std::memcpy(both, from + 2 * lane, 2), std::memcpy(both + 1, from + 2 * LANES + 2 * lane, 2);
    grid[0] = float16(both[0]), grid[1] = float16(both[1]);
    return;
  }
  std::memcpy(both, from + 4 * lane, sizeof both);
  for (int i = 0; i < 2; i++) {
    const uint32_t bits = uint32_t(both[i]) << 16;
    std::memcpy(grid + i, &bits, sizeof bits);
  }
}

inline void embed_int4(const Matrix& table, int token, float scale, float* x) {
  const int lane = token % LANES, zero = table.halves ? 0 : 8;
  const uint8_t* group = block_of(table, token / LANES);
  for (int k = 0; k < table.columns; k += GROUP, group += INT4_GROUP) {
    float grid[2];
    read_grid(group + INT4_CODES, table.halves, lane, grid);
    const auto [own, offset] = grid;
    for (int i = 0; i < GROUP / 2; i++) {
      const int both = group[i / 4 * 64 + lane * 4 + i % 4];
      // the product is exact
      x[k + i] = (float((both & 15) - zero) * own + offset) * scale;
      x[k + GROUP / 2 + i] = (float((both >> 4) - zero) * own + offset) * scale;
    }
  }
}

inline void embed_int8(const Matrix& table, int token, float scale, float* x) {
  const int lane = token % LANES, groups = groups_of(table);
  const uint8_t* block = block_of(table, token / LANES);
  float own;
  std::memcpy(&own, block + groups * INT8_GROUP + lane * sizeof(float), sizeof own);
  for (int k = 0; k < table.columns; k += 4)
    for (int i = 0; i < 4; i++) x[k + i] = float(int(block[k / 4 * 64 + lane * 4 + i]) - 128) * own * scale;
}

inline void embed_row(const Matrix& table, int token, float scale, float* x) {
  (table.bits == 4 ? embed_int4 : table.bits == 8 ? embed_int8 : embed_dense)(table, token, scale, x);
}

// RMS norm; weight is times the root of n. n may be any number.
inline void normalise(const float* x, const float* weight, int n, float eps, float* y) {
  Floats squares = Floats{};
  int k = 0;
  for (; k + LANES <= n; k += LANES) squares = fma(load(x + k), load(x + k), squares);
  float whole = sum(squares);
  for (; k < n; k++) whole += x[k] * x[k];
  const float factor = 1 / std::sqrt(whole + eps * float(n));
  for (k = 0; k + LANES <= n; k += LANES) store(y + k, load(x + k) * all(factor) * load(weight + k));
  for (; k < n; k++) y[k] = x[k] * factor * weight[k];
}

// Where a row stands. path as in Query; entry: the state that it brings along, or null.
struct Row {
  const Part* part;
  const float* entry;
  const int32_t* path;
  int position, slot;
};

// Numbers that a slot's value takes.
inline size_t wide_of(const Model& m, const Part& p) {
  const size_t each = p.half ? BESIDE<uint16_t> : BESIDE<float>;
  return (size_t(m.head_dim) + each - 1) / each * each;
}

template <class T>
inline T* plane(void* from, const Model& m, const Part& p, int layer, int head, size_t width) {
  return static_cast<T*>(from) + (size_t(layer) * m.kv_heads + head) * size_t(p.capacity) * width;
}

// Components first..first + n of a row's key or value into its slot.
template <class T>
__attribute__((always_inline)) inline void keep(const Model& m, const Row& row, int layer, int head, bool value, int first,
                                                int n, const float* x) {
  const Part& p = *row.part;
  if (value)
    put_value(plane<T>(p.values, m, p, layer, head, wide_of(m, p)), wide_of(m, p), row.slot, first, n, x);
  else
    put_key(plane<T>(p.keys, m, p, layer, head, m.head_dim), m.head_dim, row.slot, first, n, x);
}
inline void keep(const Model& m, const Row& row, int layer, int head, bool value, int first, int n, const float* x) {
  (row.part->half ? keep<uint16_t> : keep<float>)(m, row, layer, head, value, first, n, x);
}

inline void norm_heads(const Model& m, const Layer& l, float* flat, float* line) {
  const int d = m.head_dim, queries = m.heads * d, keys = m.kv_heads * d;
  if (!l.query_norm) return;
  if (!l.norm_each_head) {
    normalise(flat, l.query_norm, queries, m.eps, flat);
    normalise(flat + queries, l.key_norm, keys, m.eps, flat + queries);
    return;
  }
  for (int head = 0; head < m.heads + m.kv_heads; head++) {
    const float* weight = head < m.heads ? l.query_norm + head * d : l.key_norm + (head - m.heads) * d;
    normalise(flat + head * d, weight, d, m.eps, line);
    std::memcpy(flat + head * d, line, sizeof(float) * d);
  }
}

// A row's queries, keys and values: normed and turned in place, keys and values into their slots.
inline void turn_heads(const Model& m, const Layer& l, const float* turns, const Row& row, int layer, float* flat,
                       float* line) {
  const int d = m.head_dim;
  norm_heads(m, l, flat, line);
  for (int head = 0; head < m.heads + m.kv_heads; head++) {
    const float* turn = turns + (size_t(row.position) * 3 + (head < m.heads ? 0 : 1)) * d;
    float* x = flat + head * d;
    for (int k = 0; k < d; k += 2) {
      const float a = x[k], b = x[k + 1];
      x[k] = a * turn[k] - b * turn[k + 1];
      x[k + 1] = b * turn[k] + a * turn[k + 1];
    }
  }
  for (int head = 0; head < m.kv_heads; head++) {
    const float *key = flat + (m.heads + head) * d, *value = key + m.kv_heads * d;
    keep(m, row, layer, head, false, 0, d, key);
    keep(m, row, layer, head, true, 0, d, value);
  }
}

// Whether blocks of results are turned as they come: nothing is done to whole heads, and a block is of one head.
inline bool turns_at_once(const Model& m, const Layer& l) { return !l.query_norm && m.head_dim % LANES == 0; }

// Pairs (a, b) turned by (cos, sin): (a cos - b sin, b cos + a sin).
inline Floats turned(Floats x, Floats turn) {
  static constexpr float SIGNS[LANES] = {-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1};
  return x * evens(turn) + swapped(x) * (odds(turn) * load(SIGNS));
}

// A block of a row's queries, keys and values: queries turned to `flat`, keys turned and values into their slots.
inline void turn_block(const Model& m, const float* turns, const Row& row, int layer, int block, Floats y, float* flat) {
  const int d = m.head_dim, head = block * LANES / d, first = block * LANES % d, keys = head - m.heads;
  if (keys < m.kv_heads) y = turned(y, load(turns + (size_t(row.position) * 3 + (keys < 0 ? 0 : 1)) * d + first));
  if (keys < 0) return store(flat + block * LANES, y);
  float some[LANES];
  std::memcpy(some, &y, sizeof some);
  const bool value = keys >= m.kv_heads;
  keep(m, row, layer, value ? keys - m.kv_heads : keys, value, first, LANES, some);
}

}  // namespace forerun
