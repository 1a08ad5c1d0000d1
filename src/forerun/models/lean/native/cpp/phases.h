// The work of a step, in phases of numbered items that any thread may do.
//
// A phase is over when its items are done, not when all threads have come: one that lost its core, or wakes up late, is
// waited for only while it has an item in hand. Which thread does an item is no part of the result.
#pragma once

#include <atomic>
#include <cstdint>

namespace forerun {

constexpr int MOST_THREADS = 128;

class Phases {
 public:
  // Before a step, while no thread is in one.
  void begin(int threads);
  // An item of first..last that nobody has taken, in order; -1 where none is left.
  int take(int owner, uint32_t phase, int first, int last) {
    std::atomic<uint64_t>& next = ranges_[owner].next;
    uint64_t seen = next.load(std::memory_order_relaxed);
    for (;;) {
      const uint32_t at = uint32_t(seen >> 32);
      // a number of an earlier phase: nobody has taken from this range in this one
      const int item = at == phase ? int(uint32_t(seen)) : first;
      if (at > phase || item >= last) return -1;
      if (next.compare_exchange_weak(seen, uint64_t(phase) << 32 | uint32_t(item + 1), std::memory_order_relaxed)) return item;
    }
  }
  // This thread has done so many items; until `due` ones are done since the step began.
  void finish(int items, uint32_t due);
  // Whether that ever took as long as it does when a thread has lost its core to somebody else.
  bool stalled() const { return stalled_.load(std::memory_order_relaxed); }

 private:
  struct alignas(64) Range {
    std::atomic<uint64_t> next{0};  // phase, then item
  };
  Range ranges_[MOST_THREADS];
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<bool> stalled_{false};
};

// One thread's way through the phases. All go the same way; each takes of its own share first.
class Way {
 public:
  Way(Phases& phases, int thread, int threads) : phases_(phases), thread_(thread), threads_(threads) {}
  int thread() const { return thread_; }
  int threads() const { return threads_; }
  // The first item of this thread's share of a phase.
  int own_first(int count) const { return first(thread_, count); }

  // item(i, more) for the items that this thread gets; more: whether i + 1 is likely to be its next. Then all are done.
  template <class Item>
  void each(int count, const Item& item) {
    if (threads_ == 1) {
      for (int i = 0; i < count; i++) item(i, i + 1 < count);
      return;
    }
    if (!count) return;
    phase_++, due_ += uint32_t(count);
    int made = 0;
    for (int k = 0; k < threads_; k++) {
      const int owner = (thread_ + k) % threads_, last = first(owner + 1, count);
      for (int i; (i = phases_.take(owner, phase_, first(owner, count), last)) >= 0; made++) item(i, !k && i + 1 < last);
    }
    phases_.finish(made, due_);
  }

 private:
  int first(int thread, int count) const { return int(int64_t(count) * thread / threads_); }

  Phases& phases_;
  const int thread_, threads_;
  uint32_t phase_ = 0, due_ = 0;
};

}  // namespace forerun
