// What a call is checked for before anything of it is used: that it is there, and that its numbers fit each other. What
// addresses lead to can't be checked, but for that they are not null and that weights begin where loads may.
#pragma once

#include "attention.h"
#include "views.h"

namespace forerun {

enum Failure { DONE = 0, BAD_TOKEN = 1, NO_MEMORY = 2, BAD_SHAPE = 3, BAD_MODEL = 4 };

inline bool whole_at_lines(const Matrix& w) {
  return w.data && reinterpret_cast<uintptr_t>(w.data) % 64 == 0 && w.features > 0 && w.columns > 0 &&
         w.columns % (w.bits == 4 ? GROUP : w.bits == 8 ? 4 : 1) == 0;
}
inline bool shaped(const Matrix& w, int64_t features, int64_t columns) {
  return whole_at_lines(w) && w.features == features && w.columns == columns;
}

inline bool sound(const Model& m) {
  if (m.layers < 1 || m.width < 1 || m.width % LANES || m.kv_heads < 1 || m.heads < 1 || m.heads % m.kv_heads) return false;
  if (m.head_dim < 2 || m.head_dim % 2 || m.mlp < 1 || m.mlp % LANES || m.vocab < 1) return false;
  if (m.activation < 0 || m.activation > 1 || !m.final_norm || !m.layer) return false;
  if (!shaped(m.embedding, m.vocab, m.width)) return false;
  if (m.fuse.data && !shaped(m.fuse, m.width, m.width) && !shaped(m.fuse, m.width, 2 * int64_t(m.width))) return false;
  if (m.fuse.data && !m.state_norm) return false;
  const int64_t inner = int64_t(m.heads) * m.head_dim, all = inner + 2 * int64_t(m.kv_heads) * m.head_dim;
  for (int i = 0; i < m.layers; i++) {
    const Layer& l = m.layer[i];
    if (!shaped(l.qkv, all, m.width) || !shaped(l.out, m.width, inner)) return false;
    if (!shaped(l.gate_up, 2 * int64_t(m.mlp), m.width) || !shaped(l.down, m.width, m.mlp)) return false;
    if (!l.query_norm != !l.key_norm || l.window < 0 || l.rope < 0) return false;
  }
  return true;
}

inline bool sound(const Part& p, const Model& m) {
  if (!p.keys || !p.values || !p.depths || p.capacity % SLOTS) return false;
  if (p.n < 1 || p.first < 0 || p.committed < 0 || int64_t(p.committed) + p.first + p.n > p.capacity) return false;
  if (p.resumed < 0 || p.resumed > p.n || p.enter < 0 || p.enter > m.layers || (p.resumed && !p.entry)) return false;
  for (int row = 0; row < p.first + p.n; row++)
    if (p.depths[row] < 0 || p.depths[row] > row) return false;
  return true;
}

// Whether numbers are all within 0..end.
template <class T>
inline bool within(const T* numbers, int64_t count, int64_t end) {
  if (count < 0 || (count && !numbers)) return false;
  for (int64_t i = 0; i < count; i++)
    if (numbers[i] < 0 || numbers[i] >= end) return false;
  return true;
}

inline bool sound_rows(const Call& c) {
  const Model& m = *c.model;
  if (c.rows < 1 || c.num_parts < 1 || c.threads < 1 || (c.terms != 1 && c.terms != 2) || c.end < 0 || c.end > m.layers)
    return false;
  if (!c.parts || !c.tokens || !c.skips_attention || !c.skips_mlp || !c.turns) return false;
  int64_t rows = 0;
  for (int i = 0; i < c.num_parts; rows += c.parts[i++].n)
    if (!sound(c.parts[i], m)) return false;
  for (int i = 0; i < m.layers; i++)
    if (!c.turns[m.layer[i].rope]) return false;
  // a tap may lie after the last layer: it is what that one gave
  if (rows != c.rows || !within(c.wanted, c.num_wanted, c.rows) || !within(c.taps, c.num_taps, INT32_MAX)) return false;
  for (int i = 0; i < c.num_taps; i++)
    if (!c.tapped || !c.tapped[i]) return false;
  return true;
}

inline bool sound_head(const Call& c) {
  const Model& m = *c.model;
  if (!c.head || !whole_at_lines(*c.head) || c.head->columns != m.width) return false;
  if (c.num_wanted && (!c.logits || !c.hidden)) return false;
  return c.ids ? within(c.ids, c.head->features, m.vocab) : c.head->features == m.vocab;
}

inline Failure failure(const Call* call) {
  if (!call || !call->model || !sound(*call->model)) return BAD_MODEL;
  if (!sound_rows(*call) || !sound_head(*call)) return BAD_SHAPE;
  return within(call->tokens, call->rows, call->model->embedding.features) ? DONE : BAD_TOKEN;
}

}  // namespace forerun
