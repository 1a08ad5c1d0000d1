// What Python hands over: addresses and numbers, all owned by Python. native/views.py mirrors these structures.
#pragma once

#include <cstdint>

namespace forerun {

constexpr int GROUP = 32;  // columns that share a scale, of weights and of activations

// bits 4: codes with a scale and an offset a group, in bfloat16 (the offset is the value of code 8) or in float16 (that of
// code 0: halves); bits 8: codes + 128 with a scale a row; bits 16 and 32: bfloat16 and float32. In blocks of LANES rows, the
// last one filled up (native/matrix.py and dense.py say how); bias as long as the blocks, or null.
struct Matrix {
  const uint8_t* data;
  const float* bias;
  int32_t features, columns, bits, halves;
};

// Norm weights are times the root of their width, null where there is none. gate_up: 16 gates, 16 ups, in turns.
struct Layer {
  Matrix qkv, out, gate_up, down;
  const float *before_attention, *after_attention, *before_mlp, *after_mlp, *query_norm, *key_norm;
  int32_t norm_each_head, window, rope, unused;  // window 0: none
};

// fuse: of a decoder that reads another model's states, null elsewhere: all its rows bring an entry, and begin as the product
// with that, normed by state_norm, and after it the token's embedding where fuse is twice as wide as the model.
struct Model {
  int32_t layers, width, heads, kv_heads, head_dim, mlp, vocab, activation;  // activation 0: silu, 1: gelu by tanh
  float eps, embedding_scale, residual_scale, logit_scale;
  Matrix embedding;
  const float* final_norm;
  const Layer* layer;
  Matrix fuse;
  const float* state_norm;
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

// turns: for each rope [position, 3 (queries, keys, values), head_dim / 2, 2]. ids: the tokens of a head's rows, null for all;
// logits of other tokens stay as they are. best_values, best_tokens: written for each wanted row unless null, as choice.h has
// the best; a chain leaves them.
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
  float *logits, *hidden, *best_values;
  int32_t* best_tokens;
  int32_t num_parts, rows, end, num_wanted, num_taps, terms, threads, unused;
};

// How a call of chains goes on: the best token of a part's last row is its next row, up to most[part] rows of logits in all. Of
// a model that reads states the next row brings the state that the last one ended in. Results stand part by part: of each part
// first most[part] rows of logits, and as many states as it has rows then. width: of how many logits a token is the best.
// Written: made [part], tokens [rows of logits], -1 after a row of no use, and their shares of the softmax.
struct Chain {
  const int32_t* most;
  int32_t *made, *tokens;
  float* shares;
  int32_t width, unused;
};

// How a row of logits is narrowed. top_k 0 (or the vocabulary), top_p 1 and min_p 0 are no filters.
struct Filters {
  float temperature;
  int32_t top_k;
  double top_p, min_p;
};

}  // namespace forerun
