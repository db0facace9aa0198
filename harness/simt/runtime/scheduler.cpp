// Runs the blocks of a launch on one OS thread: fibers of a block hand over to each other, and back
// to the main fiber when none can run.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "access.h"
#include "block.h"
#include "patience.h"

extern "C" {
#define SIMT_TLS_DEFINE __thread __attribute__((tls_model("initial-exec")))
SIMT_TLS_DEFINE uint3 threadIdx;
SIMT_TLS_DEFINE uint3 blockIdx;
SIMT_TLS_DEFINE dim3 blockDim;
SIMT_TLS_DEFINE dim3 gridDim;
SIMT_TLS_DEFINE char* simt_dynamic_shared;
SIMT_TLS_DEFINE unsigned simt_lane;
SIMT_TLS_DEFINE unsigned simt_thread;
SIMT_TLS_DEFINE unsigned simt_idle;
SIMT_TLS_DEFINE unsigned long long simt_progress;
}

namespace simt {

__thread Worker* tls_worker = nullptr;
__thread Fiber* tls_self = nullptr;

uint3 thread_index(unsigned tid, dim3 block) {
  return {tid % block.x, tid / block.x % block.y, tid / (block.x * block.y)};
}

void set_thread(const Fiber* f) {
  threadIdx = thread_index(f->tid, blockDim);
  simt_thread = f->tid;
  simt_lane = f->tid % 32;
  simt_idle = 0;
}

static void switch_to(Fiber* to) {
  Worker& w = *tls_worker;
  Fiber* from = tls_self;
  if (to == from) return;
  w.switches = w.switches + 1;
  tls_self = to;
  w.in_fiber.store(to != &w.main, std::memory_order_relaxed);
  simt_switch(&from->sp, to->sp);
  if (from != &w.main) set_thread(from);
}

static Fiber* start_thread(Worker& w, Block& b) {
  Fiber* f;
  if (w.idle_fibers.empty()) {
    f = new_fiber();
  } else {
    f = w.idle_fibers.back();
    w.idle_fibers.pop_back();
  }
  f->block = &b;
  f->slot = b.live.size();
  b.live.push_back(f);
  return f;
}

static Fiber* next_fiber(Worker& w, Block& b) {
  if (b.launch->stopped.load(std::memory_order_relaxed)) return &w.main;
  if (Fiber* f = b.ready.pop()) return f;
  if (b.started < b.threads) return start_thread(w, b);
  return &w.main;
}

void suspend() {
  Worker& w = *tls_worker;
  switch_to(next_fiber(w, *w.current));
  tls_self->state = State::kRunning;
}

void abandon() {
  switch_to(&tls_worker->main);
  __builtin_unreachable();
}

static void run_thread(Block& b, Fiber* self) {
  Launch& l = *b.launch;
  try {
    l.body(l.arg);
  } catch (const std::exception& e) {
    stop(l, "exception", std::string("the kernel threw: ") + e.what(), self, Site{}, nullptr);
  } catch (...) {
    stop(l, "exception", "the kernel threw", self, Site{}, nullptr);
  }
}

void fiber_entry() {
  for (;;) {
    Worker& w = *tls_worker;
    Fiber* self = tls_self;
    Block& b = *self->block;
    const unsigned turn = b.started++;
    self->tid = b.order.empty() ? turn : b.order[turn];
    self->state = State::kRunning;
    set_thread(self);
    run_thread(b, self);
    self->state = State::kDone;
    ++simt_progress;
    after_exit(b, self->tid);
    const bool stopped = b.launch->stopped.load(std::memory_order_relaxed);
    if (!stopped && !b.ready.head && b.started < b.threads) continue;
    b.live[self->slot] = b.live.back();
    b.live[self->slot]->slot = self->slot;
    b.live.pop_back();
    w.idle_fibers.push_back(self);
    switch_to(next_fiber(w, b));
  }
}

static void poison(char* p, size_t bytes) {
  constexpr unsigned kPattern = 0xFFFBFFFBu;  // a NaN in every floating type
  for (size_t i = 0; i + 4 <= bytes + 3; i += 4) memcpy(p + i, &kPattern, 4);
}

static void reset_block(Block& b, Launch& l, uint64_t linear) {
  static std::atomic<unsigned long long> serial{0};
  if (!l.block_order.empty()) linear = l.block_order[linear];
  const dim3 g = l.config.grid;
  b.launch = &l;
  b.index = {unsigned(linear % g.x), unsigned(linear / g.x % g.y),
             unsigned(linear / (uint64_t(g.x) * g.y))};
  b.serial = ++serial;
  b.threads = b.alive = l.threads;
  b.started = 0;
  b.epoch = b.grid_epoch = 0;
  b.grid_arrived = false;
  b.votes_and = 1;
  b.votes_or = b.votes_count = 0;
  b.shared_used = b.shared_bytes = 0;
  b.regions.clear();
  std::fill(b.region_of_site.begin(), b.region_of_site.end(), -1);
  for (unsigned w = 0; w < 32; ++w) {
    const unsigned first = w * 32;
    const unsigned n = first >= l.threads ? 0 : std::min(32u, l.threads - first);
    b.warps[w].alive = n == 32 ? 0xffffffffu : (1u << n) - 1;
    b.warps[w].epoch = 0;
  }
  poison(b.shared + kSharedArena, l.config.shared);
}

static Block* begin_block(Worker& w, Launch& l) {
  if (l.resident.fetch_add(1) >= l.max_resident) {
    l.resident.fetch_sub(1);
    return nullptr;
  }
  const uint64_t linear = l.next.fetch_add(1);
  if (linear >= l.blocks) {
    l.resident.fetch_sub(1);
    return nullptr;
  }
  Block* b;
  if (w.idle_blocks.empty()) {
    b = new Block;
    b->shared = static_cast<char*>(aligned_alloc(4096, kSharedArena + kDynamicLimit + 4096));
  } else {
    b = w.idle_blocks.back();
    w.idle_blocks.pop_back();
  }
  reset_block(*b, l, linear);
  if (settings().seed) {
    b->order.resize(l.threads);
    for (unsigned i = 0; i < l.threads; ++i) b->order[i] = i;
    std::shuffle(b->order.begin(), b->order.end(), std::mt19937(settings().seed + linear));
  }
  if (l.kernel.checked) access_begin_block(*b);
  return b;
}

// One block, or half as many again as already wait, so that a grid that waits for itself gets going.
static bool begin_blocks(Worker& w, Launch& l) {
  const size_t wanted = 1 + w.resident.size() / 2;
  for (size_t i = 0; i < wanted; ++i) {
    Block* b = begin_block(w, l);
    if (!b) return i > 0;
    w.resident.push_back(b);
  }
  return true;
}

static void end_block(Worker& w, Launch& l, Block* b) {
  if (l.kernel.checked) access_end_block(*b);
  l.resident.fetch_sub(1);
  l.done.fetch_add(1);
  w.resident.erase(std::find(w.resident.begin(), w.resident.end(), b));
  w.idle_blocks.push_back(b);
}

static void poll_grid_barrier(Block& b) {
  Launch& l = *b.launch;
  if (!b.grid_arrived || l.grid_generation.load() == b.grid_generation) return;
  b.grid_arrived = false;
  ++b.epoch;
  ++b.grid_epoch;
  for (Fiber* f : b.at_grid) b.ready.push(f);
  b.at_grid.clear();
}

static void arrive_at_grid(Block& b) {
  Launch& l = *b.launch;
  b.grid_arrived = true;
  b.grid_generation = l.grid_generation.load();
  if (l.grid_arrived.fetch_add(1) + 1 == l.blocks) {
    l.grid_arrived.store(0);
    l.grid_generation.fetch_add(1);
    ++simt_progress;
  }
}

enum class Turn { kDone, kWaits, kDeadlock };

static Turn run_block(Worker& w, Block& b) {
  w.current = &b;
  blockIdx = b.index;
  simt_dynamic_shared = b.shared + kSharedArena;
  poll_grid_barrier(b);
  while (Fiber* f = b.spinning.pop()) b.ready.push(f);
  Fiber* first = next_fiber(w, b);
  if (first != &w.main) switch_to(first);
  while (!b.launch->stopped && release_gathered(b)) switch_to(next_fiber(w, b));
  if (b.launch->stopped) return Turn::kWaits;
  if (b.alive == 0) return Turn::kDone;
  if (b.spinning.head) return Turn::kWaits;
  if (b.grid_arrived) return Turn::kWaits;
  if (!b.at_grid.empty() && b.at_grid.size() == b.alive) {
    arrive_at_grid(b);
    return Turn::kWaits;
  }
  return Turn::kDeadlock;
}

static void drop_blocks(Worker& w) {
  for (Block* b : w.resident) {
    for (Fiber* f : b->live) {
      reset_fiber(f);
      w.idle_fibers.push_back(f);
    }
    b->live.clear();
    b->at_barrier.clear();
    b->at_grid.clear();
    b->gathering.clear();
    b->ready = b->spinning = Queue{};
    for (Warp& warp : b->warps) {
      for (Meet* m : warp.pending) w.idle_meets.push_back(m);
      warp.pending.clear();
    }
    for (NamedBarrier& n : b->named) n.waiting.clear();
    w.idle_blocks.push_back(b);
  }
  w.resident.clear();
}

void work(Worker& w, Launch& l) {
  tls_worker = &w;
  tls_self = &w.main;
  blockDim = l.config.block;
  gridDim = l.config.grid;
  w.all_wait = false;
  Patience patience;
  size_t turn = 0, waiting = 0;  // blocks in a row that could not go on
  while (!l.stopped.load()) {
    if (waiting >= w.resident.size()) {
      if (begin_blocks(w, l)) {
        turn = w.resident.size() - 1;
        waiting = 0;
        w.all_wait = false;
      } else if (!w.resident.empty()) {
        w.all_wait = true;
        sched_yield();
        if (patience.over(w, l)) give_up(w, l);
      }
    }
    if (w.resident.empty()) break;
    Block* b = w.resident[turn % w.resident.size()];
    const unsigned long long before = simt_progress;
    const Turn end = run_block(w, *b);
    if (end == Turn::kDone) end_block(w, l, b);
    if (end == Turn::kDeadlock)
      stop(l, deadlock_kind(*b), explain_deadlock(*b), b->live.front(), b->live.front()->at, nullptr);
    const bool moved = end == Turn::kDone || simt_progress != before;
    waiting = moved ? 0 : waiting + 1;
    if (moved) w.all_wait = false;
    if (end != Turn::kDone) ++turn;
  }
  w.all_wait = true;
  drop_blocks(w);
  w.current = nullptr;
}

}  // namespace simt
