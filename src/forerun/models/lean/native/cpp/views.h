// What Python hands over: addresses and numbers, all owned by Python. native/views.py mirrors these structures.
#pragma once

#include <cstdint>

namespace forerun {

constexpr int GROUP = 32;  // columns that share a scale, of weights and of activations

// bits 4: codes with a scale and the value of code 8 a group; bits 8: codes + 128 with a scale a row. In blocks of LANES
// rows, the last one filled up (native/matrix.py says how); bias as long as the blocks, or null.
struct Matrix {
  const uint8_t* data;
  const float* bias;
  int32_t features, columns, bits, unused;
};

// Norm weights are times the root of their width, null where there is none. gate_up: 16 gates, 16 ups, in turns.
struct Layer {
  Matrix qkv, out, gate_up, down;
  const float *before_attention, *after_attention, *before_mlp, *after_mlp, *query_norm, *key_norm;
  int32_t norm_each_head, window, rope, unused;  // window 0: none
};

struct Model {
  int32_t layers, width, heads, kv_heads, head_dim, mlp, vocab, activation;  // activation 0: silu, 1: gelu by tanh
  float eps, embedding_scale, residual_scale, logit_scale;
  Matrix embedding;
  const float* final_norm;
  const Layer* layer;
};

// n rows of one sequence after `committed` slots and `first` scratch slots. depths: of all scratch rows. ancestors
// [n, first + n]: which scratch rows a row sees; null for a chain. entry [resumed, width]: states of the leading rows, which
// sit out the layers below `enter`. keys [layer, kv head, slots / 16, head_dim, 16], values [layer, kv head, slot, padded to
// 16]; with half 1 in bfloat16 and 32 for 16, as kept.h says.
struct Part {
  void *keys, *values;
  const int32_t* depths;
  const uint8_t* ancestors;
  const float* entry;
  int64_t capacity;
  int32_t committed, first, n, resumed, enter, half;
};

// turns: for each rope [position, 3 (queries, keys, values), head_dim / 2, 2]. ids: the tokens of a head's rows, null for all.
struct Call {
  const Model* model;
  const Part* parts;
  const int32_t* tokens;
  const uint8_t *skips_attention, *skips_mlp;
  const int32_t *wanted, *taps;
  float* const* tapped;
  const float* const* turns;
  const Matrix* head;
  const int64_t* ids;
  float *logits, *hidden;
  int32_t num_parts, rows, end, num_wanted, num_taps, terms, threads, unused;
};

}  // namespace forerun
