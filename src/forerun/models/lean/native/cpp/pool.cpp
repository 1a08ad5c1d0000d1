#include "pool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forerun {
namespace {

constexpr int AWAKE = 20000;        // pauses of a thread that waits for the next step
constexpr int SPINS = 4000;         // pauses of a thread that waits for another one within a step
constexpr int REST = 64;            // steps for which a thread is left out after it had lost its core
constexpr int MOST = 255;
constexpr auto LONG = std::chrono::microseconds(500);

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Barrier::wait() {
  // read before the others learn that this one is here: the last of them may begin the next step at once
  const int threads = threads_;
  if (threads == 1) return;
  const int own = phase_.load(std::memory_order_relaxed);
  if (count_.fetch_add(1, std::memory_order_acq_rel) == threads - 1) {
    count_.store(0, std::memory_order_relaxed);
    phase_.store(own + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  for (int spins = 0; spins < SPINS; spins++) {
    if (phase_.load(std::memory_order_acquire) != own) return;
    pause();
  }
  const auto begun = std::chrono::steady_clock::now();
  while (phase_.load(std::memory_order_acquire) == own) phase_.wait(own, std::memory_order_acquire);
  if (std::chrono::steady_clock::now() - begun > LONG) stalled_.store(true, std::memory_order_relaxed);
}

void Pool::run(int threads, bool patient, Work work, void* context) {
  std::lock_guard<std::mutex> lock(one_at_a_time_);
  if (rest_ > 0 && --rest_ == 0) lost_ = 0;
  threads = std::clamp(threads - lost_, 1, MOST);
  while (int(workers_.size()) < threads - 1)
    workers_.emplace_back(&Pool::serve, this, int(workers_.size()) + 1, job_.load());
  barrier_.begin(threads);
  work_ = work, context_ = context;
  if (threads > 1) {
    job_.store((((job_.load(std::memory_order_relaxed) >> 8) + 1) << 8) | uint32_t(threads), std::memory_order_release);
    job_.notify_all();
  }
  work(context, 0, threads, barrier_);
  barrier_.wait();
  if (!patient && barrier_.stalled()) lost_++, rest_ = REST;
}

void Pool::serve(int thread, uint32_t seen) {
  for (;;) {
    for (int spins = 0; spins < AWAKE && job_.load(std::memory_order_acquire) == seen; spins++) pause();
    job_.wait(seen, std::memory_order_acquire);
    seen = job_.load(std::memory_order_acquire);
    const int threads = seen & 255;
    if (thread >= threads) continue;
    work_(context_, thread, threads, barrier_);
    barrier_.wait();
  }
}

Pool& pool() {
  // never destroyed: at exit its threads sleep, and joining them would need them to be told
  static std::atomic<Pool*> current{nullptr};
  static std::atomic<int> owner{0};
  static std::mutex making;
  const int process = int(getpid());
  if (owner.load(std::memory_order_acquire) != process) {
    std::lock_guard<std::mutex> lock(making);
    if (owner.load(std::memory_order_relaxed) != process) {
      current.store(new Pool(), std::memory_order_relaxed);
      owner.store(process, std::memory_order_release);
    }
  }
  return *current.load(std::memory_order_relaxed);
}

}  // namespace forerun
