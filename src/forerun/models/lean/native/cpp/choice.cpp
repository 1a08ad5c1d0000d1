#include "choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "elementary.h"

namespace forerun {
namespace {

constexpr int BLOCK = 4 * LANES;    // logits of which the largest is noted
constexpr int MOST = 512;           // best tokens among which the edge of top-p is looked for
constexpr int SMALL = 4096;         // a vocabulary of which all are looked at
constexpr float FAR = 30;           // tokens so far below the best one add nothing to a sum of float32
constexpr float NONE = -std::numeric_limits<float>::infinity();

struct Candidate {
  float score;  // after temperature
  int32_t token;
  double share;
};

// The largest of each block, and whether every logit is a number.
bool block_tops(const float* row, int count, std::vector<float>& tops) {
  tops.resize((count + BLOCK - 1) / BLOCK);
  Ints odd = {};
  bool sound = true;
  int block = 0;
  for (; (block + 1) * BLOCK <= count; block++) {
    Floats most = load(row + block * BLOCK);
    odd |= most != most;
    for (int at = LANES; at < BLOCK; at += LANES) {
      const Floats x = load(row + block * BLOCK + at);
      odd |= x != x;
      most = largest(most, x);
    }
    tops[block] = top(most);
  }
  if (block * BLOCK < count) {
    float most = NONE;
    for (int at = block * BLOCK; at < count; at++) sound &= row[at] == row[at], most = std::max(most, row[at]);
    tops[block] = most;
  }
  return sound && sum(odd) == 0;
}

// The n-th largest of the values, from 1 on.
float nth(std::vector<float>& values, int n) {
  std::nth_element(values.begin(), values.begin() + (n - 1), values.end(), std::greater<float>());
  return values[n - 1];
}

// All that reach the edge after division by the temperature, which may make neighbours equal: so some below are looked at.
void collect(const float* row, int count, const std::vector<float>& tops, float edge, float temperature,
             std::vector<Candidate>& found) {
  const float least = edge - 1e-6f * std::abs(edge), reached = edge / temperature;
  for (size_t block = 0; block < tops.size(); block++) {
    if (tops[block] < least) continue;
    const int first = int(block) * BLOCK, last = std::min(first + BLOCK, count);
    for (int at = first; at < last; at++)
      if (row[at] >= least && row[at] > NONE && row[at] / temperature >= reached)
        found.push_back({row[at] / temperature, at, 0});
  }
}

// The sum of e^(score - most) over all tokens.
double mass(const float* row, int count, const std::vector<float>& tops, float most, float temperature) {
  double total = 0;
  for (size_t block = 0; block < tops.size(); block++) {
    if (tops[block] / temperature < most - FAR) continue;
    const int first = int(block) * BLOCK, last = std::min(first + BLOCK, count);
    int at = first;
    Floats own = {};
    for (; at + LANES <= last; at += LANES) {
      const Floats x = load(row + at) / all(temperature) - all(most);
      own = own + where(x < all(-80.f), Floats{}, exponential(x));
    }
    total += sum(own);
    for (; at < last; at++) total += std::exp(double(row[at] / temperature - most));
  }
  return total;
}

// Leaves the most probable ones that hold the share. False where more than the candidates may be needed, and where equals
// stand at the edge: which of them stay is a matter of how torch sorts.
bool nucleus(std::vector<Candidate>& found, double whole, double top_p, bool complete) {
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  double before = 0;
  for (size_t i = 0; i < found.size(); before += found[i].share / whole, i++) {
    if (before < top_p) continue;
    if (found[i].score == found[i - 1].score) return false;
    found.resize(i);
    return true;
  }
  return complete;
}

}  // namespace

void best(const float* row, int count, float* value, int32_t* token) {
  Floats most = all(NONE);
  Ints odd = {};
  int at = 0;
  for (; at + LANES <= count; at += LANES) {
    const Floats x = load(row + at);
    odd |= x != x;
    most = largest(most, x);
  }
  float found = top(most);
  bool sound = sum(odd) == 0;
  for (; at < count; at++) sound &= row[at] == row[at], found = std::max(found, row[at]);
  int first = 0;
  const Floats wanted = all(found);
  if (sound)
    while (first + LANES <= count && !sum((Ints)(load(row + first) == wanted))) first += LANES;
  while (sound ? row[first] != found : row[first] == row[first]) first++;
  *value = row[first], *token = first;
}

int filtered(const float* row, int count, const Filters& f, int room, int32_t* tokens, double* shares) {
  const bool by_rank = f.top_k > 0 && f.top_k < count;
  if (!by_rank && f.top_p >= 1 && f.min_p <= 0) return 0;
  static thread_local std::vector<float> tops, copy;
  static thread_local std::vector<Candidate> found;
  found.clear();
  if (!block_tops(row, count, tops)) return 0;
  const float largest_logit = *std::max_element(tops.begin(), tops.end());
  if (!std::isfinite(largest_logit)) return 0;
  const float most = largest_logit / f.temperature;
  const int fewer = count <= SMALL ? count : std::min(MOST, int(tops.size()) / 2);
  const int wanted = by_rank ? f.top_k : fewer;
  const bool by_share = !by_rank && f.top_p >= 1;
  if (by_share) {
    collect(row, count, tops, largest_logit + float(std::log(f.min_p) * f.temperature) - 1e-3f * f.temperature, f.temperature, found);
  } else if (wanted > int(tops.size())) {
    for (int at = 0; at < count; at++)
      if (row[at] > NONE) found.push_back({row[at] / f.temperature, at, 0});
  } else {
    // as many blocks as tokens are wanted reach this, so as many tokens do
    copy = tops;
    collect(row, count, tops, nth(copy, wanted), f.temperature, found);
  }
  if (!by_share && int(found.size()) > wanted) {
    copy.clear();
    for (const Candidate& one : found) copy.push_back(one.score);
    const float edge = nth(copy, wanted);
    found.erase(std::remove_if(found.begin(), found.end(), [&](const Candidate& one) { return one.score < edge; }), found.end());
  }
  double whole = 0;
  for (Candidate& one : found) whole += one.share = std::exp(double(one.score) - most);
  const bool complete = by_rank || int(found.size()) == count;
  if (f.top_p < 1) {
    if (!nucleus(found, complete ? whole : mass(row, count, tops, most, f.temperature), f.top_p, complete)) return 0;
  }
  if (f.min_p > 0)
    found.erase(std::remove_if(found.begin(), found.end(), [&](const Candidate& one) { return one.share < f.min_p; }), found.end());
  if (int(found.size()) > room) return 0;
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double left = 0;
  for (const Candidate& one : found) left += one.share;
  for (size_t i = 0; i < found.size(); i++) tokens[i] = found[i].token, shares[i] = found[i].share / left;
  return int(found.size());
}

}  // namespace forerun
