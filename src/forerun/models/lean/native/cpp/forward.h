// One forward of a model, whole: what every thread of the pool does between two barriers.
//
// Rows are flat over all parts. Rows that sit layers out leave the rest in order: `live` says which rows take part.
#pragma once

#include "attention.h"
#include "pool.h"
#include "operand.h"
#include "workspace.h"

namespace forerun {

class Forward {
 public:
  Forward(const Call& call, Workspace& space, int thread, int threads, Barrier& barrier)
      : c_(call), m_(*call.model), s_(space), t_(thread), threads_(threads), barrier_(barrier) {}

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
  int from(int count) const { return int(int64_t(count) * t_ / threads_); }
  int to(int count) const { return int(int64_t(count) * (t_ + 1) / threads_); }
  float* state(int row) const { return s_.x.get() + size_t(row) * m_.width; }
  Operand operand(const Matrix& w, int rows, int buffer) const {
    return Operand(w, c_.terms, rows, s_.operands[buffer].get());
  }
  const uint8_t* own_part(const Matrix& w) const { return block_of(w, from(blocks_of(w))); }

  void begin() {
    m_.fuse.data ? fuse() : embed();
    if (c_.ids)
      for (size_t i = size_t(m_.vocab) * from(c_.num_wanted), end = size_t(m_.vocab) * to(c_.num_wanted); i < end; i++)
        c_.logits[i] = -__builtin_inff();
    barrier_.wait();
  }

  void embed() {
    for (int r = from(c_.rows); r < to(c_.rows); r++) {
      embed_row(m_.embedding, c_.tokens[r], m_.embedding_scale, state(r));
      if (const float* entry = s_.rows[r].entry) std::memcpy(state(r), entry, sizeof(float) * m_.width);
    }
  }

  void fuse() {
    const Matrix& w = m_.fuse;
    const Operand in = prepare(w, c_.rows, [&](int first, int last, const Operand& out) {
      float* line = s_.line(t_);
      for (int r = first; r < last; r++) {
        normalise(s_.rows[r].entry, m_.state_norm, m_.width, m_.eps, line);
        if (w.columns > m_.width) embed_row(m_.embedding, c_.tokens[r], 1, line + m_.width);
        out.set(r, line);
      }
    });
    const int blocks = blocks_of(w);
    product(w, from(blocks), to(blocks), own_part(m_.layer[0].qkv), in,
            [&](int b, int r, Floats y) { store(state(r) + b * LANES, y); });
  }

  // Taps after the last layer that runs are all what it gave.
  void keep_taps(int layer) {
    for (int i = 0; i < c_.num_taps; i++)
      if (c_.taps[i] == layer || (layer == c_.end && c_.taps[i] > layer)) {
        const size_t first = size_t(from(c_.rows)) * m_.width, last = size_t(to(c_.rows)) * m_.width;
        std::memcpy(c_.tapped[i] + first, s_.x.get() + first, sizeof(float) * (last - first));
        // the layers after this one may share the rows otherwise
        barrier_.wait();
      }
  }

  // Rows for a product with w: `ready` sets rows first..last. Few are every thread's own work: cheaper than to wait for each
  // other.
  template <class Ready>
  Operand prepare(const Matrix& w, int rows, const Ready& ready) {
    const bool share = threads_ > 1 && rows >= 4;
    const Operand out = operand(w, rows, share ? 0 : 2 + t_);
    ready(share ? from(rows) : 0, share ? to(rows) : rows, out);
    if (share) barrier_.wait();
    return out;
  }

  Operand normed(const Matrix& w, const float* weight, const Live& live) {
    return prepare(w, live.count(), [&](int first, int last, const Operand& out) {
      float* row = s_.line(t_);
      for (int i = first; i < last; i++) {
        const float* x = state(live.rows[i]);
        if (weight) normalise(x, weight, m_.width, m_.eps, row);
        out.set(i, weight ? row : x);
      }
    });
  }

  void attend(const Layer& l, int layer, const Live& live) {
    const int all = (m_.heads + 2 * m_.kv_heads) * m_.head_dim, inner = m_.heads * m_.head_dim;
    const Operand in = normed(l.qkv, l.before_attention, live);
    const int blocks = blocks_of(l.qkv);
    product(l.qkv, from(blocks), to(blocks), own_part(l.out), in,
            [&](int b, int r, Floats y) { put(s_.flat.get() + size_t(r) * all, b * LANES, all, y); });
    barrier_.wait();
    for (int i = from(live.count()); i < to(live.count()); i++)
      turn_heads(m_, l, c_.turns[l.rope], s_.rows[live.rows[i]], layer, s_.flat.get() + size_t(i) * all, s_.line(t_));
    barrier_.wait();
    attend_queries(l, layer, live);
    barrier_.wait();
    const Operand mixed = prepare(l.out, live.count(), [&](int first, int last, const Operand& out) {
      for (int i = first; i < last; i++) out.set(i, s_.mixed.get() + size_t(i) * inner);
    });
    add(l.out, l.after_attention, mixed, live, own_part(l.gate_up));
  }

  // Queries of all parts are dealt out by how much they read.
  void attend_queries(const Layer& l, int layer, const Live& live) {
    const int group = m_.heads / m_.kv_heads, all = (m_.heads + 2 * m_.kv_heads) * m_.head_dim;
    const int inner = m_.heads * m_.head_dim;
    int64_t whole = 0;
    for (const Stretch& part : live.parts) whole += part.cost;
    const int64_t first = whole * t_ / threads_, last = whole * (t_ + 1) / threads_;
    int64_t before = 0;
    for (const Stretch& part : live.parts) {
      const int each = part.count * group, queries = m_.kv_heads * each;
      const auto bound = [&](int64_t at) {
        const int64_t inside = at - before < 0 ? 0 : at - before > part.cost ? part.cost : at - before;
        return int(inside * queries / part.cost);
      };
      const int stop = bound(last);
      for (int i = bound(first); i < stop;) {
        const int head = i / each, in_head = (head + 1) * each - i;
        int count = stop - i < TOGETHER ? stop - i : TOGETHER;
        count = in_head < count ? in_head : count;
        Query some[TOGETHER];
        for (int j = 0; j < count; j++) {
          const int at = part.first + (i + j) % each / group, query = head * group + (i + j) % group;
          const Row& row = s_.rows[live.rows[at]];
          const int start = l.window && row.position >= l.window ? row.position - l.window + 1 : 0;
          some[j] = {s_.flat.get() + size_t(at) * all + query * m_.head_dim,
                     s_.mixed.get() + size_t(at) * inner + query * m_.head_dim,
                     row.path, start, row.position + 1, row.slot + 1};
        }
        forerun::attend(slots_of(m_, *part.part, layer, head), some, count, s_.scores(t_), s_.scores_stride);
        i += count;
      }
      before += part.cost;
    }
  }

  void feed(const Layer& l, int layer, const Live& live) {
    const Operand inner = operand(l.down, live.count(), 1);
    gate_up(l, normed(l.gate_up, l.before_mlp, live), inner, live.count());
    barrier_.wait();
    const uint8_t* then = own_part(layer + 1 < c_.end ? m_.layer[layer + 1].qkv : *c_.head);
    add(l.down, l.after_mlp, inner, live, then);
  }

  // A unit is four blocks, two of gates and two of ups: 32 results are one thread's own, and leave it ready for the next
  // product. The last unit may have half of them.
  void gate_up(const Layer& l, const Operand& in, const Operand& out, int rows) {
    const int units = (m_.mlp + GROUP - 1) / GROUP, blocks = blocks_of(l.gate_up), last = to(units);
    float* kept = s_.unit(t_);
    for (int unit = from(units); unit < last; unit++) {
      const uint8_t* then = unit + 1 < last ? block_of(l.gate_up, 4 * unit + 4) : own_part(l.down);
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
    }
  }

  // A sublayer's last product onto the stream, through a norm where there is one.
  void add(const Matrix& w, const float* norm, const Operand& in, const Live& live, const uint8_t* then) {
    const int blocks = blocks_of(w);
    const Floats scale = all(m_.residual_scale);
    product(w, from(blocks), to(blocks), then, in, [&](int b, int r, Floats y) {
      float* x = norm ? s_.flat.get() + size_t(r) * m_.width : state(live.rows[r]);
      x += b * LANES;
      store(x, norm ? y : fma(y, scale, load(x)));
    });
    barrier_.wait();
    if (!norm) return;
    float* row = s_.line(t_);
    for (int i = from(live.count()); i < to(live.count()); i++) {
      normalise(s_.flat.get() + size_t(i) * m_.width, norm, m_.width, m_.eps, row);
      float* x = state(live.rows[i]);
      for (int k = 0; k < m_.width; k += LANES) store(x + k, fma(load(row + k), scale, load(x + k)));
    }
    barrier_.wait();
  }

  void finish() {
    if (!c_.num_wanted) return;
    for (int i = from(c_.num_wanted); i < to(c_.num_wanted); i++)
      normalise(state(c_.wanted[i]), m_.final_norm, m_.width, m_.eps, c_.hidden + size_t(i) * m_.width);
    barrier_.wait();
    const Matrix& w = *c_.head;
    const Operand in = prepare(w, c_.num_wanted, [&](int first, int last, const Operand& out) {
      for (int i = first; i < last; i++) out.set(i, c_.hidden + size_t(i) * m_.width);
    });
    const int blocks = blocks_of(w);
    const Floats scale = all(m_.logit_scale);
    const uint8_t* then = c_.end ? own_part(m_.layer[0].qkv) : w.data;
    product(w, from(blocks), to(blocks), then, in, [&](int b, int r, Floats y) {
      float* row = c_.logits + size_t(r) * m_.vocab;
      y = y * scale;
      if (!c_.ids) return put(row, b * LANES, w.features, y);
      for (int i = 0; i < LANES && b * LANES + i < w.features; i++) row[c_.ids[b * LANES + i]] = y[i];
    });
  }

  const Call& c_;
  const Model& m_;
  Workspace& s_;
  const int t_, threads_;
  Barrier& barrier_;
};

}  // namespace forerun
