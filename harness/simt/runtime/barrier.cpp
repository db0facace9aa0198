// __syncthreads and its voting forms, bar.sync of a part of the block, grid.sync, spinning.
#include "access.h"
#include "block.h"

namespace simt {

static void wait_as(State state, Site site) {
  tls_self->state = state;
  tls_self->at = site;
  tls_self->pc = nullptr;
  suspend();
}

void release_barrier(Block& b) {
  for (Fiber* f : b.at_barrier) b.ready.push(f);
  b.at_barrier.clear();
  b.result_and = b.votes_and;
  b.result_or = b.votes_or;
  b.result_count = b.votes_count;
  b.votes_and = 1;
  b.votes_or = b.votes_count = 0;
  ++b.epoch;
  ++simt_progress;
}

static void check_same_barrier(Block& b, Site site) {
  if (b.at_barrier.empty()) {
    b.barrier_site = site;
    return;
  }
  if (b.barrier_site.line == site.line) return;
  for (Fiber* f : b.at_barrier) {
    if (f->tid / 32 != tls_self->tid / 32 || f->at.line == site.line) continue;
    stop(*b.launch, "diverged barrier",
         "threads of one warp wait at different barriers: thread " +
             text(thread_index(f->tid, blockDim)) + " at line " + std::to_string(f->at.line) +
             ", this one at line " + std::to_string(site.line),
         tls_self, site, nullptr);
    abandon();
  }
  find("diverged barrier", "warning",
       "warps of one block meet at different barriers (undefined by the programming guide)", site,
       nullptr, b.barrier_site);
}

static void arrive(Block& b, Site site) {
  check_same_barrier(b, site);
  if (b.at_barrier.size() + 1 == b.alive) {
    release_barrier(b);
    return;
  }
  b.at_barrier.push_back(tls_self);
  wait_as(State::kAtBarrier, site);
}

void barrier(Site site) { arrive(*tls_worker->current, site); }

int barrier_vote(int predicate, Vote vote, Site site) {
  Block& b = *tls_worker->current;
  b.votes_and &= predicate != 0;
  b.votes_or |= predicate != 0;
  b.votes_count += predicate != 0;
  arrive(b, site);
  return vote == kCount ? b.result_count : vote == kAnd ? b.result_and : b.result_or;
}

void named_barrier(unsigned id, unsigned threads, Site site) {
  Block& b = *tls_worker->current;
  NamedBarrier& n = b.named[id % 16];
  if (n.waiting.size() + 1 >= threads) {
    for (Fiber* f : n.waiting) b.ready.push(f);
    n.waiting.clear();
    ++simt_progress;
    return;
  }
  n.waiting.push_back(tls_self);
  wait_as(State::kAtBarrier, site);
}

void grid_barrier(Site site) {
  Block& b = *tls_worker->current;
  if (!b.launch->kernel.cooperative)
    fault("invalid grid barrier", "grid.sync() needs a cooperative launch", site);
  b.at_grid.push_back(tls_self);
  wait_as(State::kAtGrid, site);
}

void spin(Site site) {
  Block& b = *tls_worker->current;
  b.spinning.push(tls_self);
  wait_as(State::kSpinning, site);
}

unsigned block_threads() { return tls_worker->current->threads; }
bool in_kernel() { return tls_worker && tls_self && tls_self != &tls_worker->main; }
long long ticks() { return static_cast<long long>(tls_worker->switches + simt_progress) * 8; }

void fence() {
  if (tls_worker->current->launch->kernel.checked) access_fence();
}

void after_exit(Block& b, unsigned tid) {
  meet_after_exit(b, tid);
  --b.alive;
  if (b.alive == 0 || b.at_barrier.size() != b.alive) return;
  find("early exit", "note", "some threads had left the kernel when the others met at this barrier",
       b.barrier_site);
  release_barrier(b);
}

static std::string describe(const Fiber* f) {
  std::string at = "thread " + text(thread_index(f->tid, blockDim)) + " waits at " + f->at.what +
                   " line " + std::to_string(f->at.line);
  if (f->state == State::kAtMeet) {
    char lanes[64];
    const unsigned missing = f->meet->mask & ~f->meet->arrived;
    snprintf(lanes, sizeof lanes, " for lanes 0x%08x of its warp", missing);
    at += lanes;
  }
  return at;
}

const char* deadlock_kind(const Block& b) {
  for (const Fiber* f : b.live)
    if (f->state != State::kAtMeet) return "deadlock";
  return "wrong mask";
}

std::string explain_deadlock(Block& b) {
  std::string message;
  std::vector<int> lines;
  for (const Fiber* f : b.live) {
    bool known = false;
    for (int line : lines) known |= line == f->at.line;
    if (known || lines.size() == 4) continue;
    lines.push_back(f->at.line);
    message += (message.empty() ? "" : "; ") + describe(f);
  }
  return message;
}

}  // namespace simt
