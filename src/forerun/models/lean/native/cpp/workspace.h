// Room for one forward at a time, kept between forwards, and what is known of its rows before it begins.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <vector>

#include "attention.h"
#include "rows.h"

namespace forerun {

struct Release {
  void operator()(void* memory) const { std::free(memory); }
};
template <class T>
using Buffer = std::unique_ptr<T[], Release>;

// Rows of one part that take part in a layer: live rows first.., and how much their attention reads.
struct Stretch {
  const Part* part;
  int first, count;
  int64_t cost;
};

// Queries of one key head of a stretch (row by row, a row's queries of that head together) that share a load of keys.
struct Piece {
  int part, head, first, count;
};

struct Live {
  std::vector<int> rows;
  std::vector<Stretch> parts;
  std::vector<Piece> pieces;
  int count() const { return int(rows.size()); }
};

// groups: of rows that threads quantise together (0), of the MLP's inner rows (1), of each thread's own (2 + thread).
class Workspace {
 public:
  std::vector<Row> rows;
  Buffer<float> x, flat, mixed;
  std::vector<Buffer<uint8_t>> groups;
  size_t scores_stride = 0;

  void prepare(const Call& call, size_t group_size);
  // Whether the rows' slots and paths are within what their parts hold.
  bool sound() const;
  const Live& live_in(int layer) const { return std::prev(live_.upper_bound(layer))->second; }
  float* scores(int thread) { return threads_[thread].scores.get(); }
  float* line(int thread) { return threads_[thread].line.get(); }
  float* unit(int thread) { return threads_[thread].unit.get(); }

 private:
  struct OfThread {
    Buffer<float> scores, line, unit;
  };
  void reserve(const Call& call, size_t longest, size_t group_size);
  void lay_out(const Call& call);
  void find_paths(const Part& part);
  static void cut(const Model& m, int threads, Live& live);

  std::map<int, Live> live_;  // by the first layer that it holds for
  std::vector<std::vector<int32_t>> paths_;  // of the rows of trees, in order
  std::vector<OfThread> threads_;
  std::vector<size_t> reserved_;
};

inline Slots slots_of(const Model& m, const Part& p, int layer, int head) {
  const size_t wide = wide_of(m, p);
  const auto of = [&]<class T>(T) {
    return Slots{plane<T>(p.keys, m, p, layer, head, m.head_dim), plane<T>(p.values, m, p, layer, head, wide),
                 m.head_dim, int(wide), p.committed, p.half};
  };
  return p.half ? of(uint16_t()) : of(float());
}

}  // namespace forerun
