// Attention of some queries of one key head over the slots of one sequence.
//
// A row sees its prefix and then its own path of scratch rows. Scores and values are added up along that path, by position
// and not by slot, so a row of a tree gives the bits that it gives as the end of a chain.
#pragma once

#include "elementary.h"
#include "kept.h"

namespace forerun {

constexpr int SLOTS = 64;     // slots whose scores are computed together; capacities are multiples of it
constexpr int TOGETHER = PIECES == 1 ? 6 : 3;  // queries that share a load of keys, as registers allow
constexpr int GATHERED = PIECES == 1 ? 3 : 2;  // of these, queries that share a load of values
constexpr int WIDE = PIECES == 1 ? 4 : 2;      // vectors of slots that share a query's number

// path: the scratch slots that a tree's row sees, in order; null for a chain. It sees positions start..length.
struct Query {
  const float* q;
  float* out;
  const int32_t* path;
  int start, length, end;  // end: after the last slot that it reads
};

// keys and values of one key head, float32 or bfloat16 (half). padded: numbers of a slot's value
struct Slots {
  const void *keys, *values;
  int head_dim, padded, committed, half;
};

template <int Q, class T>
void score(const Slots& s, const Query* queries, int begin, int end, float* scores, size_t stride) {
  const int d = s.head_dim;
  for (int slot = begin; slot < end; slot += WIDE * LANES) {
    Floats a[Q][WIDE];
    for (int i = 0; i < Q; i++)
      for (auto& lanes : a[i]) lanes = Floats{};
    const T* k = static_cast<const T*>(s.keys) + size_t(slot) * d;
    for (int e = 0; e < d; e++, k += BESIDE<T>) {
#pragma GCC unroll 4
      for (int b = 0; b < WIDE; b++) {
        const Floats key = vector_at(k, size_t(LANES) * d, b);
#pragma GCC unroll 6
        for (int i = 0; i < Q; i++) a[i][b] = fma(key, all(queries[i].q[e]), a[i][b]);
      }
    }
    for (int i = 0; i < Q; i++)
      for (int b = 0; b < WIDE; b++) store(scores + i * stride + slot + b * LANES, a[i][b]);
  }
}

// Scores of slots to shares of positions, unnormalised; the inverse of their sum.
inline float shares_of(const Slots& s, const Query& query, int begin, int end, float* own) {
  constexpr float HIDDEN = -__builtin_inff();
  if (query.path)
    for (int at = s.committed; at < query.length; at++) own[at] = own[s.committed + query.path[at - s.committed]];
  const int padded = (query.length + LANES - 1) / LANES * LANES;
  for (int at = begin; at < query.start; at++) own[at] = HIDDEN;
  for (int at = query.length; at < padded; at++) own[at] = HIDDEN;
  Floats best = load(own + begin);
  for (int at = begin + LANES; at < padded; at += LANES) best = largest(best, load(own + at));
  const Floats most = all(top(best));
  Floats total = Floats{};
  for (int at = begin; at < padded; at += LANES) {
    const Floats raw = load(own + at);
    const Floats share = where(raw == all(HIDDEN), Floats{}, exponential(raw - most));
    total = total + share;
    store(own + at, share);
  }
  for (int at = padded; at < end; at++) own[at] = 0;
  return 1 / sum(total);
}

// Values mixed by their shares, W x 16 components from `part` on. Even and odd positions apart, for the latency.
template <int Q, int W, class T>
void mix(const Slots& s, const Query* queries, int part, int begin, int shared, const float* shares, size_t stride,
         const float* inverse) {
  Floats a[Q][2][W];
  for (auto& query : a)
    for (auto& half : query)
      for (auto& lanes : half) lanes = Floats{};
  const T* values = static_cast<const T*>(s.values) + part;
  const auto take = [&](int at, int half) {
    const T* v = values + size_t(at) * s.padded;
#pragma GCC unroll 4
    for (int w = 0; w < W; w++) {
      const Floats value = vector_at(v, LANES, w);
#pragma GCC unroll 3
      for (int i = 0; i < Q; i++) a[i][half][w] = fma(value, all(shares[i * stride + at]), a[i][half][w]);
    }
  };
  int at = begin;
  for (; at + 1 < shared; at += 2) take(at, 0), take(at + 1, 1);
  if (at < shared) take(at, 0);
  for (int i = 0; i < Q; i++) {
    const Query& query = queries[i];
    for (int at = shared; query.path && at < query.length; at++) {
      const T* v = values + size_t(s.committed + query.path[at - s.committed]) * s.padded;
      for (int w = 0; w < W; w++)
        a[i][at & 1][w] = fma(vector_at(v, LANES, w), all(shares[i * stride + at]), a[i][at & 1][w]);
    }
    for (int w = 0; w < W; w++) {
      const Floats mixed = (a[i][0][w] + a[i][1][w]) * all(inverse[i]);
      const int first = part + w * LANES, left = s.head_dim - first;
      if (left >= LANES)
        store(query.out + first, mixed);
      else if (left > 0)
        std::memcpy(query.out + first, &mixed, left * sizeof(float));
    }
  }
}

template <int Q, class T>
void mix_all(const Slots& s, const Query* queries, int begin, int shared, const float* shares, size_t stride,
             const float* inverse) {
  int part = 0;
  for (; PIECES == 1 && part + 4 * LANES <= s.padded; part += 4 * LANES)
    mix<Q, 4, T>(s, queries, part, begin, shared, shares, stride, inverse);
  for (; part < s.padded; part += BESIDE<T>)
    mix<Q, BESIDE<T> / LANES, T>(s, queries, part, begin, shared, shares, stride, inverse);
}

template <int Q, class T>
void attend(const Slots& s, const Query* queries, float* scores, size_t stride) {
  int begin = queries[0].start, end = 0;
  for (int i = 0; i < Q; i++) {
    begin = queries[i].start < begin ? queries[i].start : begin;
    end = queries[i].end > end ? queries[i].end : end;
  }
  begin = begin / SLOTS * SLOTS;
  score<Q, T>(s, queries, begin, end, scores, stride);
  float inverse[Q];
  for (int i = 0; i < Q; i++) inverse[i] = shares_of(s, queries[i], begin, end, scores + i * stride);
  // what a tree's rows see of each other differs
  int shared = end;
  for (int i = 0; i < Q; i++)
    if (queries[i].path) shared = s.committed > begin ? s.committed : begin;
  mix_all<(Q < GATHERED ? Q : GATHERED), T>(s, queries, begin, shared, scores, stride, inverse);
  if constexpr (Q > GATHERED)
    mix_all<Q - GATHERED, T>(s, queries + GATHERED, begin, shared, scores + GATHERED * stride, stride, inverse + GATHERED);
}

template <class T>
void attend(const Slots& s, const Query* queries, int count, float* scores, size_t stride) {
  switch (count) {
    case 1: return attend<1, T>(s, queries, scores, stride);
    case 2: return attend<2, T>(s, queries, scores, stride);
    case 3: return attend<3, T>(s, queries, scores, stride);
    case 4: return attend<4, T>(s, queries, scores, stride);
    case 5: return attend<5, T>(s, queries, scores, stride);
    case 6: return attend<6, T>(s, queries, scores, stride);
  }
}

inline void attend(const Slots& s, const Query* queries, int count, float* scores, size_t stride) {
  (s.half ? attend<uint16_t> : attend<float>)(s, queries, count, scores, stride);
}

}  // namespace forerun
