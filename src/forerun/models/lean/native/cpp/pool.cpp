#include "pool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace forerun {
namespace {

constexpr int AWAKE = 20000;      // pauses of a thread that waits for the next step
constexpr int MOMENT = 24;        // pauses before a thread takes over what others have left
constexpr int SPINS = 4000;       // pauses of a thread that waits for others within a step
constexpr int LEAST_REST = 4;     // steps for which a thread is left out after it had lost its core,
constexpr int MOST_REST = 64;     // twice as many each time that it loses it again
constexpr int CALM = 64;          // steps without a loss after which the next rest is short again

using Clock = std::chrono::steady_clock;

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `over` holds of the value, whose changes that bring it about are notified. For how long, after some pauses.
template <class Over>
Clock::duration wait_until(std::atomic<uint32_t>& value, const Over& over) {
  for (int spins = 0; spins < SPINS; spins++) {
    if (over(value.load(std::memory_order_seq_cst))) return {};
    pause();
  }
  const auto begun = Clock::now();
  for (uint32_t seen; !over(seen = value.load(std::memory_order_seq_cst));) value.wait(seen, std::memory_order_seq_cst);
  return Clock::now() - begun;
}

}  // namespace

void Phases::begin(int threads) {
  for (int i = 0; i < threads; i++) ranges_[i].next.store(0, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  waited_ = {};
}

bool Phases::finished(int items, uint32_t due) {
  if (items && done_.fetch_add(uint32_t(items), std::memory_order_acq_rel) + uint32_t(items) == due) {
    done_.notify_all();
    return true;
  }
  for (int spins = 0; spins < MOMENT; spins++) {
    // a thread that came late finds counts of later phases
    if (done_.load(std::memory_order_acquire) >= due) return true;
    pause();
  }
  return false;
}

void Phases::finish(int thread, int items, uint32_t due) {
  if (finished(items, due)) return;
  const auto waited = wait_until(done_, [due](uint32_t done) { return done >= due; });
  if (!thread) waited_ += waited;
}

void Pool::run(int threads, bool patient, Work work, void* context) {
  std::lock_guard<std::mutex> lock(one_at_a_time_);
  if (rest_ > 0 && --rest_ == 0) lost_ = 0;
  threads = std::clamp(threads - lost_, 1, MOST_THREADS);
  while (int(workers_.size()) < threads - 1)
    workers_.emplace_back(&Pool::serve, this, int(workers_.size()) + 1, job_.load());
  phases_.begin(threads);
  work_ = work, context_ = context;
  const auto begun = Clock::now();
  if (threads > 1) open(threads);
  Way way(phases_, 0, threads);
  work(context, way);
  const auto waited = phases_.waited() + (threads > 1 ? close() : Clock::duration{});
  // a step that waited longer than this would have ended sooner without the thread that it waited for
  if (!patient) judge(waited * threads > Clock::now() - begun);
}

void Pool::open(int threads) {
  job_.store(((job_.load(std::memory_order_relaxed) >> 8) + 1) << 8 | uint32_t(threads), std::memory_order_seq_cst);
  job_.notify_all();
}

// Nobody joins any more, and those who had joined have left: what the job pointed to may go. For how long it waited. Both
// sides' accesses are sequentially consistent, so a worker that isn't counted here sees that the job is closed.
Clock::duration Pool::close() {
  job_.store(((job_.load(std::memory_order_relaxed) >> 8) + 1) << 8, std::memory_order_seq_cst);
  return wait_until(inside_, [](uint32_t inside) { return !inside; });
}

void Pool::judge(bool stalled) {
  if (stalled) {
    next_rest_ = std::clamp(2 * next_rest_, LEAST_REST, MOST_REST);
    lost_++, rest_ = next_rest_, calm_ = 0;
  } else if (!lost_ && ++calm_ >= CALM) {
    next_rest_ = 0, calm_ = 0;
  }
}

void Pool::serve(int thread, uint32_t seen) {
  for (;;) {
    for (int spins = 0; spins < AWAKE && job_.load(std::memory_order_acquire) == seen; spins++) pause();
    job_.wait(seen, std::memory_order_acquire);
    seen = job_.load(std::memory_order_acquire);
    const int threads = seen & 255;
    if (thread >= threads) continue;
    inside_.fetch_add(1, std::memory_order_seq_cst);
    if (job_.load(std::memory_order_seq_cst) == seen) {
      Way way(phases_, thread, threads);
      work_(context_, way);
    }
    if (inside_.fetch_sub(1, std::memory_order_seq_cst) == 1) inside_.notify_all();
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
