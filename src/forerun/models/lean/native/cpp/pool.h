// The threads of a process for native steps: one pool, which waits awake for a moment after a step and sleeps then.
#pragma once

#include <mutex>
#include <thread>
#include <vector>

#include "phases.h"

namespace forerun {

class Pool {
 public:
  using Work = void (*)(void* context, Way& way);
  // work on at most `threads` threads, this one among them; it begins at once, and others join when they wake up.
  // patient: the items of this work are long, waiting is normal.
  void run(int threads, bool patient, Work work, void* context);

 private:
  void serve(int thread, uint32_t seen);
  void open(int threads);
  std::chrono::steady_clock::duration close();
  void judge(bool stalled);

  std::mutex one_at_a_time_;
  std::vector<std::thread> workers_;
  Phases phases_;
  alignas(64) std::atomic<uint32_t> job_{1 << 8};  // a number, and in the low byte how many threads may join
  alignas(64) std::atomic<uint32_t> inside_{0};    // workers that look at the job
  Work work_ = nullptr;
  void* context_ = nullptr;
  int lost_ = 0, rest_ = 0;       // threads that do without their core for `rest_` more steps
  int next_rest_ = 0, calm_ = 0;  // how long the next rest is, and steps since all threads are back
};

// The pool of this process; a forked child, which has none of its parent's threads, gets its own.
Pool& pool();

}  // namespace forerun
