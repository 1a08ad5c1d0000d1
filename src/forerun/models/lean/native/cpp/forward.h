// One forward of a model, whole, in the phases that threads share.
//
// Rows are flat over all parts. Rows that sit layers out leave the rest in order: `live` says which rows take part.
#pragma once

#include "attention.h"
#include "phases.h"
#include "products.h"
#include "workspace.h"

namespace forerun {

constexpr int ITEM = 2;  // blocks of a product that a thread takes at a time
inline int items_of(const Matrix& w) { return (blocks_of(w) + ITEM - 1) / ITEM; }

template <int TERMS>
class Forward {
 public:
  Forward(const Call& call, Workspace& space, Way& way)
      : c_(call), m_(*call.model), s_(space), way_(way), t_(way.thread()) {}

  void run() {
    begin();
    for (int i = 0; i < c_.end; i++) {
      keep_taps(i);
      const Live& live = s_.live_in(i);
      if (!live.count()) continue;
      if (!c_.skips_attention[i]) attend(m_.layer[i], i, live);
      if (!c_.skips_mlp[i]) feed(m_.layer[i], i, live);
    }
    keep_taps(c_.end);
    finish();
  }

 private:
  float* state(int row) const { return s_.x.get() + size_t(row) * m_.width; }
  Group<TERMS>* groups(int buffer) const { return reinterpret_cast<Group<TERMS>*>(s_.groups[buffer].get()); }
  // What this thread reads first of a product.
  const uint8_t* own_part(const Matrix& w) const { return block_of(w, ITEM * way_.own_first(items_of(w))); }

  void begin() {
    way_.each(c_.rows + (c_.ids ? c_.num_wanted : 0), [&](int r, bool) {
      if (r >= c_.rows) {
        float* row = c_.logits + size_t(r - c_.rows) * m_.vocab;
        for (int i = 0; i < m_.vocab; i++) row[i] = -__builtin_inff();
        return;
      }
      embed_row(m_.embedding, c_.tokens[r], m_.embedding_scale, state(r));
      if (const float* entry = s_.rows[r].entry) std::memcpy(state(r), entry, sizeof(float) * m_.width);
    });
  }

  // Taps after the last layer that runs are all what it gave.
  void keep_taps(int layer) {
    for (int i = 0; i < c_.num_taps; i++)
      if (c_.taps[i] == layer || (layer == c_.end && c_.taps[i] > layer)) {
        way_.each(c_.rows, [&](int r, bool) {
          std::memcpy(c_.tapped[i] + size_t(r) * m_.width, state(r), sizeof(float) * m_.width);
        });
      }
  }

  // A product of rows that `quantise` (row, out) makes, 16 results at a time to take(block, row, y). Few rows are quantised
  // by each thread for itself, when it has got an item: cheaper than to wait for each other. then: what is read afterwards.
  template <class Quantise, class Take>
  void multiply(const Matrix& w, int rows, const uint8_t* then, const Quantise& quantise, const Take& take) {
    const Chunks chunks(rows, TERMS);
    each_item(items_of(w), rows, quantise, [&](int i, bool more, const Group<TERMS>* in) {
      some_blocks(w, i, more ? nullptr : then, in, chunks, take);
    });
  }

  // then: what is read afterwards, null for the next item.
  template <class Take>
  void some_blocks(const Matrix& w, int item, const uint8_t* then, const Group<TERMS>* in, const Chunks& chunks, const Take& take) {
    const int first = item * ITEM, last = first + ITEM < blocks_of(w) ? first + ITEM : blocks_of(w);
    product<TERMS>(w, first, last, then ? then : block_of(w, last), in, chunks, take);
  }

  template <class Quantise, class Item>
  void each_item(int count, int rows, const Quantise& quantise, const Item& item) {
    const bool share = way_.threads() > 1 && rows >= 4;
    Group<TERMS>* in = share ? groups(0) : groups(2 + t_);
    if (share) way_.each(rows, [&](int r, bool) { quantise(r, in); });
    bool ready = share;
    way_.each(count, [&](int i, bool more) {
      for (int r = 0; !ready && r < rows; r++) quantise(r, in);
      ready = true;
      item(i, more, in);
    });
  }

  // Rows of the stream, normed where there is a weight.
  auto normed(const float* weight, const Live& live, const Chunks& chunks) {
    return [this, weight, &live, &chunks](int i, Group<TERMS>* out) {
      float* row = s_.line(t_);
      const float* x = state(live.rows[i]);
      if (weight) normalise(x, weight, m_.width, m_.eps, row);
      quantise_row<TERMS>(weight ? row : x, i, chunks, m_.width / GROUP, out);
    };
  }

  void attend(const Layer& l, int layer, const Live& live) {
    const Chunks chunks(live.count(), TERMS);
    const int all = (m_.heads + 2 * m_.kv_heads) * m_.head_dim, inner = m_.heads * m_.head_dim;
    const float* turns = c_.turns[l.rope];
    const bool at_once = turns_at_once(m_, l);
    multiply(l.qkv, live.count(), own_part(l.out), normed(l.before_attention, live, chunks), [&](int b, int r, Floats y) {
      float* flat = s_.flat.get() + size_t(r) * all;
      if (at_once)
        turn_block(m_, turns, s_.rows[live.rows[r]], layer, b, y, flat);
      else
        put(flat, b * LANES, all, y);
    });
    if (!at_once)
      way_.each(live.count(), [&](int i, bool) {
        turn_heads(m_, l, turns, s_.rows[live.rows[i]], layer, s_.flat.get() + size_t(i) * all, s_.line(t_));
      });
    way_.each(int(live.pieces.size()), [&](int i, bool) { attend_piece(l, layer, live, live.pieces[i]); });
    const auto quantise = [&](int i, Group<TERMS>* out) {
      quantise_row<TERMS>(s_.mixed.get() + size_t(i) * inner, i, chunks, inner / GROUP, out);
    };
    const uint8_t* then = block_of(l.gate_up, 4 * way_.own_first(m_.mlp / GROUP));
    add(l.after_attention, live, [&](const auto& take) { multiply(l.out, live.count(), then, quantise, take); });
  }

  void attend_piece(const Layer& l, int layer, const Live& live, const Piece& piece) {
    const int group = m_.heads / m_.kv_heads, all = (m_.heads + 2 * m_.kv_heads) * m_.head_dim;
    const int inner = m_.heads * m_.head_dim;
    const Stretch& part = live.parts[piece.part];
    Query some[TOGETHER];
    for (int j = 0; j < piece.count; j++) {
      const int at = part.first + (piece.first + j) / group, query = piece.head * group + (piece.first + j) % group;
      const Row& row = s_.rows[live.rows[at]];
      const int start = l.window && row.position >= l.window ? row.position - l.window + 1 : 0;
      some[j] = {s_.flat.get() + size_t(at) * all + query * m_.head_dim,
                 s_.mixed.get() + size_t(at) * inner + query * m_.head_dim,
                 row.path, start, row.position + 1, row.slot + 1};
    }
    forerun::attend(slots_of(m_, *part.part, layer, piece.head), some, piece.count, s_.scores(t_), s_.scores_stride);
  }

  void feed(const Layer& l, int layer, const Live& live) {
    const Chunks chunks(live.count(), TERMS);
    gate_up(l, live.count(), chunks, normed(l.before_mlp, live, chunks));
    const uint8_t* then = own_part(layer + 1 < c_.end ? m_.layer[layer + 1].qkv : *c_.head);
    add(l.after_mlp, live, [&](const auto& take) {
      way_.each(items_of(l.down), [&](int i, bool more) { some_blocks(l.down, i, more ? nullptr : then, groups(1), chunks, take); });
    });
  }

  // A unit is four blocks, two of gates and two of ups: 32 results are one thread's own, and leave it quantised.
  template <class Quantise>
  void gate_up(const Layer& l, int rows, const Chunks& chunks, const Quantise& quantise_in) {
    const int units = m_.mlp / GROUP;
    float* kept = s_.unit(t_);
    each_item(units, rows, quantise_in, [&](int unit, bool more, const Group<TERMS>* in) {
      const uint8_t* then = more ? block_of(l.gate_up, 4 * unit + 4) : own_part(l.down);
      product<TERMS>(l.gate_up, 4 * unit, 4 * unit + 4, then, in, chunks,
                     [&](int b, int r, Floats y) { store(kept + (size_t(r) * 4 + b % 4) * LANES, y); });
      for (int r = 0; r < rows; r++) {
        Floats h[2];
        for (int i = 0; i < 2; i++) {
          const Floats gate = load(kept + (size_t(r) * 4 + 2 * i) * LANES);
          h[i] = (m_.activation ? gelu(gate) : silu(gate)) * load(kept + (size_t(r) * 4 + 2 * i + 1) * LANES);
        }
        quantise<TERMS>(h[0], h[1], groups(1)[chunks.place(r, unit, units)]);
      }
    });
  }

  // A sublayer's last product, of which `multiply` is given what takes results, onto the stream, through a norm if there is one.
  template <class Multiply>
  void add(const float* norm, const Live& live, const Multiply& multiply) {
    const Floats scale = all(m_.residual_scale);
    multiply([&](int b, int r, Floats y) {
      float* x = norm ? s_.flat.get() + size_t(r) * m_.width : state(live.rows[r]);
      x += b * LANES;
      store(x, norm ? y : fma(y, scale, load(x)));
    });
    if (!norm) return;
    way_.each(live.count(), [&](int i, bool) {
      float* row = s_.line(t_);
      normalise(s_.flat.get() + size_t(i) * m_.width, norm, m_.width, m_.eps, row);
      float* x = state(live.rows[i]);
      for (int k = 0; k < m_.width; k += LANES) store(x + k, fma(load(row + k), scale, load(x + k)));
    });
  }

  void finish() {
    if (!c_.num_wanted) return;
    const Chunks chunks(c_.num_wanted, TERMS);
    way_.each(c_.num_wanted, [&](int i, bool) {
      normalise(state(c_.wanted[i]), m_.final_norm, m_.width, m_.eps, c_.hidden + size_t(i) * m_.width);
    });
    const Matrix& w = *c_.head;
    const Floats scale = all(m_.logit_scale);
    const auto quantise = [&](int i, Group<TERMS>* out) {
      quantise_row<TERMS>(c_.hidden + size_t(i) * m_.width, i, chunks, m_.width / GROUP, out);
    };
    multiply(w, c_.num_wanted, c_.end ? own_part(m_.layer[0].qkv) : w.data, quantise, [&](int b, int r, Floats y) {
      float* row = c_.logits + size_t(r) * m_.vocab;
      y = y * scale;
      if (!c_.ids) return put(row, b * LANES, w.features, y);
      for (int i = 0; i < LANES && b * LANES + i < w.features; i++) row[c_.ids[b * LANES + i]] = y[i];
    });
  }

  const Call& c_;
  const Model& m_;
  Workspace& s_;
  Way& way_;
  const int t_;
};

}  // namespace forerun
