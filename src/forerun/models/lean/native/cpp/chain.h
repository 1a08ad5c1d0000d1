// Greedy chains: after each forward the best token of every part's last row is that part's next row.
//
// Each row is laid out as a forward of its own would lay it out, so it has the bits that it has there. A part that has got all
// its rows, or a row of no use, sits out the forwards that follow.
#pragma once

#include <cmath>
#include <utility>

#include "bests.h"
#include "border.h"
#include "forward.h"
#include "pool.h"

namespace forerun {

constexpr int FEW = 16;  // rows with which threads are expected to wait but briefly for each other

class Chained {
 public:
  Chained(const Call& call, const Chain& chain, Workspace& space)
      : c_(call), chain_(chain), s_(space), bests_(chain.width, true) {
    parts_.assign(call.parts, call.parts + call.num_parts);
    tokens_.assign(call.tokens, call.tokens + call.rows);
    int logits = 0, states = 0, rows = 0;
    for (int i = 0; i < call.num_parts; i++) {
      texts_.push_back({i, logits, states});
      for (int row = 0; row < parts_[i].n; row++) kept_at_.push_back(states + row);
      texts_[i].last = (rows += parts_[i].n) - 1;
      chain.made[i] = 0;
      logits += chain.most[i], states += parts_[i].n + chain.most[i] - 1;
    }
    entries_.resize(call.model->fuse.data ? size_t(call.num_parts) * call.model->width : 0);
  }

  // False where the rows are not sound.
  bool run() {
    while (!texts_.empty()) {
      lay_out();
      s_.prepare(c_);
      if (!s_.sound(c_)) return false;
      pool().run(c_.threads, c_.rows > FEW, work, this);
      choose();
    }
    return true;
  }

 private:
  // A part that goes on. logits, states: where its next rows of results go; last: its last row of this forward.
  struct Text {
    int part, logits, states, last = 0;
  };
  static void work(void* context, Way& way) {
    Chained& own = *static_cast<Chained*>(context);
    Forward(own.c_, own.s_, way, {own.wanted_at_.data(), own.kept_at_.data()}).run();
    const auto row_at = [&](int text) { return own.c_.logits + size_t(own.wanted_at_[text]) * own.c_.model->vocab; };
    way.each(own.bests_.items(), [&](int i, bool) { own.bests_.look(i, row_at); });
  }

  void lay_out() {
    wanted_.clear(), wanted_at_.clear();
    for (const Text& text : texts_) wanted_.push_back(text.last), wanted_at_.push_back(text.logits);
    bests_.begin(int(texts_.size()));
    c_.parts = parts_.data(), c_.tokens = tokens_.data(), c_.wanted = wanted_.data();
    c_.num_parts = c_.num_wanted = int(texts_.size()), c_.rows = int(tokens_.size());
  }

  // The token after a row, -1 where it is of no use, and its share.
  std::pair<int32_t, float> token_after(int text) const {
    const Best found = bests_.of(text);
    if (found.value != found.value || found.value == -__builtin_inff()) return {-1, 0};
    return {found.token, std::isfinite(found.value) ? float(1 / found.mass) : 0.f};
  }

  // What follows of each text; the rows of the next forward.
  void choose() {
    std::vector<Text> on;
    std::vector<Part> parts;
    tokens_.clear(), kept_at_.clear();
    for (size_t i = 0; i < texts_.size(); i++) {
      Text text = texts_[i];
      const auto [token, share] = token_after(int(i));
      chain_.tokens[text.logits] = token, chain_.shares[text.logits] = share;
      if (++chain_.made[text.part] == chain_.most[text.part] || token < 0) continue;
      Part next = parts_[i];
      text.logits++, text.states += next.n;
      next.first += next.n, next.n = 1;
      if (!entries_.empty()) {
        float* entry = entries_.data() + size_t(text.part) * c_.model->width;
        std::memcpy(entry, s_.x.get() + size_t(text.last) * c_.model->width, sizeof(float) * c_.model->width);
        next.entry = entry, next.resumed = 1;
      }
      text.last = int(on.size());
      on.push_back(text), parts.push_back(next), tokens_.push_back(token), kept_at_.push_back(text.states);
    }
    texts_.swap(on), parts_.swap(parts);
  }

  Call c_;  // of this forward
  const Chain& chain_;
  Workspace& s_;
  std::vector<Text> texts_;
  std::vector<Part> parts_;
  std::vector<int32_t> tokens_, wanted_, wanted_at_, kept_at_;
  Bests bests_;
  std::vector<float> entries_;
};

// Of a call that was found sound.
inline bool sound(const Call& call, const Chain* chain) {
  if (!chain || !chain->most || !chain->made || !chain->tokens || !chain->shares) return false;
  if (chain->width < 1 || chain->width > call.model->vocab || call.num_wanted != call.num_parts) return false;
  int64_t rows = 0;
  for (int i = 0; i < call.num_parts; i++) {
    const Part& part = call.parts[i];
    rows += part.n;
    if (part.ancestors || chain->most[i] < 1 || call.wanted[i] != rows - 1) return false;
    const int64_t held = int64_t(part.first) + part.n + chain->most[i] - 1;
    if (part.committed + held > part.capacity || (part.resumed && !call.model->fuse.data)) return false;
    for (int64_t row = 0; row < held; row++)
      if (part.depths[row] != row) return false;
  }
  return true;
}

}  // namespace forerun
