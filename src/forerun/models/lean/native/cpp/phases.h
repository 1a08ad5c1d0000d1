// The work of a step, in phases of numbered items that any thread may do.
//
// A phase is over when its items are done, not when all threads have come: one that lost its core, or wakes up late, is
// waited for only while it has an item in hand. Which thread does an item is no part of the result.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace forerun {

constexpr int MOST_THREADS = 128;

struct Run {
  int begin, end;
};

class Phases {
 public:
  // Before a step, while no thread is in one.
  void begin(int threads);
  // Some items of first..last that nobody has taken, in order: most of them, since an atomic access waits for all loads
  // before it, and the last ones apart, so that threads end together. Empty where none is left.
  Run take(int owner, uint32_t phase, int first, int last) {
    std::atomic<uint64_t>& next = ranges_[owner].next;
    uint64_t seen = next.load(std::memory_order_relaxed);
    for (;;) {
      const uint32_t at = uint32_t(seen >> 32);
      // a number of an earlier phase: nobody has taken from this range in this one
      const int begin = at == phase ? int(uint32_t(seen)) : first;
      if (at > phase || begin >= last) return {0, 0};
      const int end = last - (last - begin) / 4;
      if (next.compare_exchange_weak(seen, uint64_t(phase) << 32 | uint32_t(end), std::memory_order_relaxed)) return {begin, end};
    }
  }
  // This thread has done so many more items. Whether `due` ones are done since the step began, now or in a moment.
  bool finished(int items, uint32_t due);
  // The same, until they are.
  void finish(int thread, int items, uint32_t due);
  // How long the first thread waited there, but for a moment each time: as it does when another one has lost its core.
  std::chrono::steady_clock::duration waited() const { return waited_; }

 private:
  struct alignas(64) Range {
    std::atomic<uint64_t> next{0};  // phase, then item
  };
  Range ranges_[MOST_THREADS];
  alignas(64) std::atomic<uint32_t> done_{0};
  std::chrono::steady_clock::duration waited_{};
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
    const int made = take_from(thread_, count, item);
    // others mostly end at about the same time, and looking at what they have left would slow them down
    if (phases_.finished(made, due_)) return;
    int more = 0;
    for (int k = 1; k < threads_; k++) more += take_from((thread_ + k) % threads_, count, item);
    phases_.finish(thread_, more, due_);
  }

 private:
  // How many items it got of what is left of a share.
  template <class Item>
  int take_from(int owner, int count, const Item& item) {
    const int begin = first(owner, count), end = first(owner + 1, count);
    int made = 0;
    for (Run run; (run = phases_.take(owner, phase_, begin, end)).begin < run.end; made += run.end - run.begin)
      for (int i = run.begin; i < run.end; i++) item(i, i + 1 < (owner == thread_ ? end : run.end));
    return made;
  }
  int first(int thread, int count) const { return int(int64_t(count) * thread / threads_); }

  Phases& phases_;
  const int thread_, threads_;
  uint32_t phase_ = 0, due_ = 0;
};

}  // namespace forerun
