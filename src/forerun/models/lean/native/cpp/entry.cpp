// The plain C interface that Python calls. Everything it is given stays the caller's.
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "bests.h"
#include "border.h"
#include "chain.h"
#include "choice.h"
#include "forward.h"
#include "pool.h"
#include "processor.h"

using namespace forerun;

namespace {

constexpr int VERSION = 5;  // of the structures in views.h; native/library.py refuses any other

struct Job {
  const Call& call;
  Workspace& space;
  Bests bests;
};

void forward(void* context, Way& way) {
  Job& job = *static_cast<Job*>(context);
  Forward(job.call, job.space, way).run();
  const auto row_at = [&](int row) { return job.call.logits + size_t(row) * job.call.model->vocab; };
  way.each(job.bests.items(), [&](int i, bool) { job.bests.look(i, row_at); });
}

struct Linear {
  const Matrix* w;
  const float* x;
  float* y;
  int rows, terms;
  uint8_t* room;
};

void linear(void* context, Way& way) {
  const Linear& job = *static_cast<Linear*>(context);
  const Matrix& w = *job.w;
  const Operand in(w, job.terms, job.rows, job.room);
  const int blocks = blocks_of(w);
  way.each(job.rows, [&](int r, bool) { in.set(r, job.x + size_t(r) * w.columns); });
  way.each(items_of(w), [&](int i, bool) {
    product(w, i * ITEM, std::min(i * ITEM + ITEM, blocks), w.data, in,
            [&](int b, int r, Floats y) { put(job.y + size_t(r) * w.features, b * LANES, w.features, y); });
  });
}

constexpr int64_t LINES = 1024;  // of 64 bytes, that a thread reads at a time

struct Reading {
  const uint8_t* bytes;
  int64_t count;
  std::atomic<int> seen;
};

void read(void* context, Way& way) {
  Reading& job = *static_cast<Reading*>(context);
  const int64_t lines = job.count / 64;
  way.each(int((lines + LINES - 1) / LINES), [&](int item, bool) {
    int64_t i = item * LINES;
    const int64_t last = std::min(i + LINES, lines);
    Bytes a = {}, b = {}, c = {}, d = {};
    for (const uint8_t* from = job.bytes + 64 * i; i + 4 <= last; i += 4, from += 256)
      a ^= codes(from), b ^= codes(from + 64), c ^= codes(from + 128), d ^= codes(from + 192);
    for (; i < last; i++) a ^= codes(job.bytes + 64 * i);
    job.seen.fetch_xor(sum((Ints)(a ^ b ^ c ^ d)));
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int forerun_version() { return VERSION; }

// Bits of what this processor has, and its operating system keeps: see processor.h.
int forerun_processor() { return processor(); }

Workspace* forerun_workspace() { return new (std::nothrow) Workspace(); }
void forerun_release(Workspace* space) { delete space; }

// A forward in a workspace that nobody else uses meanwhile.
int forerun_forward(const Call* call, Workspace* space) {
  if (!space) return NO_MEMORY;
  if (const Failure found = failure(call)) return found;
  const int bests = call->best_tokens && call->best_values ? call->num_wanted : 0;
  Job job{*call, *space, Bests(call->model->vocab, false)};
  try {
    space->prepare(*call);
    job.bests.begin(bests);
  } catch (const std::bad_alloc&) {
    return NO_MEMORY;
  }
  if (!space->sound(*call)) return BAD_SHAPE;
  pool().run(call->threads, call->rows > FEW, forward, &job);
  for (int row = 0; row < bests; row++) {
    const Best best = job.bests.of(row);
    call->best_values[row] = best.value, call->best_tokens[row] = best.token;
  }
  return DONE;
}

// The same of a call of chains, and how they go on.
int forerun_chain(const Call* call, const Chain* chain, Workspace* space) {
  if (!space) return NO_MEMORY;
  if (const Failure found = failure(call)) return found;
  if (!sound(*call, chain)) return BAD_SHAPE;
  try {
    return Chained(*call, *chain, *space).run() ? DONE : BAD_SHAPE;
  } catch (const std::bad_alloc&) {
    return NO_MEMORY;
  }
}

// The best token of each row, which lie `apart` floats from each other.
int forerun_best(const float* logits, int rows, int64_t apart, int count, float* values, int32_t* tokens) {
  if (rows < 0 || count < 1 || apart < count) return BAD_SHAPE;
  for (int row = 0; row < rows; row++) best(logits + row * apart, count, values + row, tokens + row);
  return DONE;
}

// As filtered has it; the number of tokens.
int forerun_filtered(const float* row, int count, const Filters* filters, int room, int32_t* tokens, double* shares) {
  if (count < 1 || !(filters->temperature > 0)) return 0;
  try {
    return filtered(row, count, *filters, room, tokens, shares);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

// y [rows, features] of x [rows, columns].
int forerun_linear(const Matrix* w, const float* x, int rows, float* y, int terms, int threads) {
  if (!w || !whole_at_lines(*w) || !x || !y || rows < 1 || threads < 1 || (terms != 1 && terms != 2)) return BAD_SHAPE;
  const size_t units = (size_t(w->columns) + GROUP - 1) / GROUP;
  const Buffer<uint8_t> room(static_cast<uint8_t*>(std::aligned_alloc(64, size_t(rows) * units * ROOM)));
  if (!room) return NO_MEMORY;
  Linear job{w, x, y, rows, terms, room.get()};
  pool().run(threads, true, linear, &job);
  return DONE;
}

// Ask for large pages where this room lies, before it is first written to: a step reads all weights, page after page.
void forerun_large_pages(void* room, int64_t count) {
#if defined(MADV_HUGEPAGE)
  constexpr uintptr_t PAGE = 2u << 20;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(room) + PAGE - 1) / PAGE * PAGE;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(room) + uintptr_t(count)) / PAGE * PAGE;
  // a wish only: where it isn't granted, pages stay small
  if (last > first) (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)room, (void)count;
#endif
}

// Reads bytes (a multiple of 64) once, and gives something of them, so that no reading is left out.
int forerun_read(const uint8_t* bytes, int64_t count, int threads) {
  if (!bytes || count < 0 || threads < 1) return 0;
  Reading job{bytes, count, {}};
  pool().run(threads, true, read, &job);
  return job.seen.load();
}

}  // extern "C"
#pragma GCC visibility pop
