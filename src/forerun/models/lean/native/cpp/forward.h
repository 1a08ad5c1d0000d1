// One forward of a model, whole, in the phases that threads share.
//
// Rows are flat over all parts. Rows that sit layers out leave the rest in order: `live` says which rows take part.
#pragma once

#include "attention.h"
#include "operand.h"
#include "phases.h"
#include "workspace.h"

namespace forerun {

constexpr int ITEM = 2;  // blocks of a product that a thread takes at a time
inline int items_of(const Matrix& w) { return (blocks_of(w) + ITEM - 1) / ITEM; }

// Which row of the results the i-th wanted one, and the states of the i-th row, become; null: the i-th.
struct Places {
  const int32_t *wanted = nullptr, *kept = nullptr;
};

class Forward {
 public:
  Forward(const Call& call, Workspace& space, Way& way, Places at = {})
      : c_(call), m_(*call.model), s_(space), way_(way), at_(at), t_(way.thread()) {}

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
  static size_t placed(const int32_t* at, int row) { return size_t(at ? at[row] : row); }
  float* state(int row) const { return s_.x.get() + size_t(row) * m_.width; }
  Operand operand(const Matrix& w, int rows, int buffer) const {
    return Operand(w, c_.terms, rows, s_.operands[buffer].get());
  }
  // What this thread reads first of a product.
  const uint8_t* own_part(const Matrix& w) const { return block_of(w, ITEM * way_.own_first(items_of(w))); }

  void begin() {
    if (m_.fuse.data) return fuse();
    way_.each(c_.rows, [&](int r, bool) {
      embed_row(m_.embedding, c_.tokens[r], m_.embedding_scale, state(r));
      if (const float* entry = s_.rows[r].entry) std::memcpy(state(r), entry, sizeof(float) * m_.width);
    });
  }

  void fuse() {
    const auto set = [&](int r, const Operand& out) {
      float* line = s_.line(t_);
      normalise(s_.rows[r].entry, m_.state_norm, m_.width, m_.eps, line);
      if (m_.fuse.columns > m_.width) embed_row(m_.embedding, c_.tokens[r], 1, line + m_.width);
      out.set(r, line);
    };
    multiply(m_.fuse, c_.rows, own_part(m_.layer[0].qkv), set,
             [&](int b, int r, Floats y) { store(state(r) + b * LANES, y); });
  }

  // Taps after the last layer that runs are all what it gave.
  void keep_taps(int layer) {
    for (int i = 0; i < c_.num_taps; i++)
      if (c_.taps[i] == layer || (layer == c_.end && c_.taps[i] > layer)) {
        way_.each(c_.rows, [&](int r, bool) {
          std::memcpy(c_.tapped[i] + placed(at_.kept, r) * m_.width, state(r), sizeof(float) * m_.width);
        });
      }
  }

  // A product of rows that `set` (row, out) makes, 16 results at a time to take(block, row, y). Few rows are made by each
  // thread for itself, when it has got an item: cheaper than to wait for each other. then: what is read afterwards.
  template <class Set, class Take>
  void multiply(const Matrix& w, int rows, const uint8_t* then, const Set& set, const Take& take) {
    each_item(w, items_of(w), rows, set, [&](int i, bool more, const Operand& in) {
      some_blocks(w, i, more ? nullptr : then, in, take);
    });
  }

  // then: what is read afterwards, null for the next item.
  template <class Take>
  void some_blocks(const Matrix& w, int item, const uint8_t* then, const Operand& in, const Take& take) {
    const int first = item * ITEM, last = first + ITEM < blocks_of(w) ? first + ITEM : blocks_of(w);
    product(w, first, last, then ? then : block_of(w, last), in, take);
  }

  template <class Set, class Item>
  void each_item(const Matrix& w, int count, int rows, const Set& set, const Item& item) {
    const bool share = way_.threads() > 1 && rows >= 4;
    const Operand in = operand(w, rows, share ? 0 : 2 + t_);
    if (share) way_.each(rows, [&](int r, bool) { set(r, in); });
    bool ready = share;
    way_.each(count, [&](int i, bool more) {
      for (int r = 0; !ready && r < rows; r++) set(r, in);
      ready = true;
      item(i, more, in);
    });
  }

  // Rows of the stream, normed where there is a weight.
  auto normed(const float* weight, const Live& live) {
    return [this, weight, &live](int i, const Operand& out) {
      float* row = s_.line(t_);
      const float* x = state(live.rows[i]);
      if (weight) normalise(x, weight, m_.width, m_.eps, row);
      out.set(i, weight ? row : x);
    };
  }

  void attend(const Layer& l, int layer, const Live& live) {
    const int all = (m_.heads + 2 * m_.kv_heads) * m_.head_dim, inner = m_.heads * m_.head_dim;
    const float* turns = c_.turns[l.rope];
    const bool at_once = turns_at_once(m_, l);
    multiply(l.qkv, live.count(), own_part(l.out), normed(l.before_attention, live), [&](int b, int r, Floats y) {
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
    const auto set = [&](int i, const Operand& out) { out.set(i, s_.mixed.get() + size_t(i) * inner); };
    const uint8_t* then = block_of(l.gate_up, 4 * way_.own_first(units()));
    add(l.after_attention, live, [&](const auto& take) { multiply(l.out, live.count(), then, set, take); });
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
    const Operand inner = operand(l.down, live.count(), 1);
    gate_up(l, live.count(), normed(l.before_mlp, live), inner);
    const uint8_t* then = own_part(layer + 1 < c_.end ? m_.layer[layer + 1].qkv : *c_.head);
    add(l.after_mlp, live, [&](const auto& take) {
      way_.each(items_of(l.down), [&](int i, bool more) { some_blocks(l.down, i, more ? nullptr : then, inner, take); });
    });
  }

  int units() const { return (m_.mlp + GROUP - 1) / GROUP; }

  // A unit is four blocks, two of gates and two of ups: 32 results are one thread's own, and leave it ready for the next
  // product. The last unit may have half of them.
  template <class Set>
  void gate_up(const Layer& l, int rows, const Set& set, const Operand& out) {
    const int blocks = blocks_of(l.gate_up);
    float* kept = s_.unit(t_);
    each_item(l.gate_up, units(), rows, set, [&](int unit, bool more, const Operand& in) {
      const uint8_t* then = more ? block_of(l.gate_up, 4 * unit + 4) : own_part(l.down);
      const int end = 4 * unit + 4 < blocks ? 4 * unit + 4 : blocks, halves = (end - 4 * unit) / 2;
      product(l.gate_up, 4 * unit, end, then, in,
              [&](int b, int r, Floats y) { store(kept + (size_t(r) * 4 + b % 4) * LANES, y); });
      for (int r = 0; r < rows; r++) {
        Floats h[2] = {};
        for (int i = 0; i < halves; i++) {
          const Floats gate = load(kept + (size_t(r) * 4 + 2 * i) * LANES);
          h[i] = (m_.activation ? gelu(gate) : silu(gate)) * load(kept + (size_t(r) * 4 + 2 * i + 1) * LANES);
        }
        out.set(r, unit, h[0], h[1]);
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
    way_.each(c_.num_wanted, [&](int i, bool) {
      normalise(state(c_.wanted[i]), m_.final_norm, m_.width, m_.eps, c_.hidden + placed(at_.wanted, i) * m_.width);
    });
    const Matrix& w = *c_.head;
    const Floats scale = all(m_.logit_scale);
    const auto set = [&](int i, const Operand& out) { out.set(i, c_.hidden + placed(at_.wanted, i) * m_.width); };
    multiply(w, c_.num_wanted, c_.end ? own_part(m_.layer[0].qkv) : w.data, set, [&](int b, int r, Floats y) {
      float* row = c_.logits + placed(at_.wanted, r) * m_.vocab;
      y = y * scale;
      if (!c_.ids) return put(row, b * LANES, w.features, y);
      for (int i = 0; i < LANES && b * LANES + i < w.features; i++) row[c_.ids[b * LANES + i]] = y[i];
    });
  }

  const Call& c_;
  const Model& m_;
  Workspace& s_;
  Way& way_;
  const Places at_;
  const int t_;
};

}  // namespace forerun
