// The best token of each of some rows of logits, looked for piece by piece by the threads that have just written them.
#pragma once

#include <cmath>
#include <vector>

#include "choice.h"
#include "elementary.h"

namespace forerun {

// As `best` has it. mass: of e^(logit - value) over the row, where it was wanted.
struct Best {
  float value;
  int32_t token;
  double mass;
};

class Bests {
 public:
  // width: of how many logits of a row a token is the best.
  Bests(int width, bool masses) : width_(width), pieces_((width + PIECE - 1) / PIECE), masses_(masses) {}

  void begin(int rows) { found_.resize(size_t(rows) * pieces_); }
  int items() const { return int(found_.size()); }

  // row_at(row): where a row's logits are.
  template <class RowAt>
  void look(int item, const RowAt& row_at) {
    const int first = item % pieces_ * PIECE, count = first + PIECE < width_ ? PIECE : width_ - first;
    const float* row = row_at(item / pieces_) + first;
    Best& found = found_[item];
    best(row, count, &found.value, &found.token);
    found.token += first, found.mass = masses_ && std::isfinite(found.value) ? mass(row, count, found.value) : 0;
  }

  Best of(int row) const {
    const Best *from = &found_[size_t(row) * pieces_], *most = from;
    for (const Best* one = from; one < from + pieces_; one++) {
      if (one->value != one->value) return *one;
      if (one->value > most->value) most = one;
    }
    Best whole = {most->value, most->token, 0};
    for (const Best* one = from; one < from + pieces_; one++)
      if (one->mass > 0) whole.mass += one->mass * std::exp(double(one->value) - most->value);
    return whole;
  }

 private:
  static constexpr int PIECE = 4096;  // logits that a thread looks at at a time

  static double mass(const float* row, int count, float most) {
    Floats lanes = {};
    int at = 0;
    for (; at + LANES <= count; at += LANES) {
      const Floats x = load(row + at) - all(most);
      lanes = lanes + where(x < all(-80.f), Floats{}, exponential(x));
    }
    double whole = sum(lanes);
    for (; at < count; at++) whole += std::exp(double(row[at]) - most);
    return whole;
  }

  const int width_, pieces_;
  const bool masses_;
  std::vector<Best> found_;
};

}  // namespace forerun
