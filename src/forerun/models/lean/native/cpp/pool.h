// The threads of a process for native steps: one pool, which waits awake for a moment after a step and sleeps then.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace forerun {

class Barrier {
 public:
  void begin(int threads) {
    threads_ = threads;
    stalled_.store(false, std::memory_order_relaxed);
  }
  // Until all threads are here.
  void wait();
  // Whether that ever took as long as it does when a thread has lost its core to somebody else.
  bool stalled() const { return stalled_.load(std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<int> count_{0};
  alignas(64) std::atomic<int> phase_{0};
  std::atomic<bool> stalled_{false};
  int threads_ = 1;
};

class Pool {
 public:
  using Work = void (*)(void* context, int thread, int threads, Barrier& barrier);
  // work on at most `threads` threads, this one among them. patient: the parts of this work are long, waiting is normal.
  void run(int threads, bool patient, Work work, void* context);

 private:
  void serve(int thread, uint32_t seen);

  std::mutex one_at_a_time_;
  std::vector<std::thread> workers_;
  Barrier barrier_;
  alignas(64) std::atomic<uint32_t> job_{1};  // a number, and in the low byte how many threads it takes
  Work work_ = nullptr;
  void* context_ = nullptr;
  int lost_ = 0, rest_ = 0;  // threads that do without their core for `rest_` more steps
};

// The pool of this process; a forked child, which has none of its parent's threads, gets its own.
Pool& pool();

}  // namespace forerun
