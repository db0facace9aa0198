// Block and grid barriers; the text of a deadlock.
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "machine.h"
#include "simt/sync.h"

namespace simt {

static std::string at(const Waiting& w) {
  return std::string(w.kind) + " of line " + std::to_string(w.line);
}

static void fail_here(const char* kind, const std::string& message, const Waiting& w, int other) {
  fail(kind, message.c_str(), w.file, w.line, nullptr, other);
}

static void release(Block& b, Barrier& r, unsigned id) {
  for (Fiber* f : r.fibers) push(b, f);
  r.fibers.clear();
  r.was_all = r.all, r.was_any = r.any, r.was_count = r.count;
  r.all = 1, r.any = r.count = 0;
  r.arrived = r.expected = 0;
  b.preempted = 0;
  count_progress();
  if (id == 0) {
    ++b.barrier_epoch;
    if (observer) observer->block_barrier(b);
  }
}

static void require_kernel(const char* what) {
  if (!in_kernel()) fail("misuse", (std::string(what) + " outside a kernel").c_str(), nullptr, 0);
}

static void arrive(Block& b, unsigned id, unsigned count, const Waiting& here) {
  Barrier& r = b.barriers[id];
  if (r.arrived == 0) {
    r.at = here;
    r.expected = count;
  } else if (id == 0 && count == 0 && r.at.line != here.line) {
    fail_here("diverged barrier",
              "diverged barrier: " + thread_name(b.index, worker->current->index) + " is at the " +
                  at(here) + " while " + std::to_string(r.arrived) +
                  " threads of its block wait at the " + at(r.at),
              here, r.at.line);
  }
  ++r.arrived;
  if (r.arrived == (count ? count : b.alive)) return release(b, r, id);
  r.fibers.push_back(worker->current);
  park(here);
}

void barrier(unsigned id, unsigned count, const char* file, int line) {
  require_kernel("__syncthreads()");
  if (id >= kBarriers) fail("misuse", "a block has 16 barriers, 0 to 15", file, line);
  Waiting here{id ? "bar.sync" : "__syncthreads", file, line, 0};
  Block& b = *worker->current->block;
  arrive(b, id, count == b.threads ? 0 : count, here);
}

int barrier_vote(Vote what, bool predicate, const char* file, int line) {
  require_kernel("__syncthreads_count()");
  Block& b = *worker->current->block;
  Barrier& r = b.barriers[0];
  r.all &= predicate;
  r.any |= predicate;
  r.count += predicate;
  arrive(b, 0, 0, {"__syncthreads", file, line, 0});
  return what == Vote::count ? r.was_count : what == Vote::all ? r.was_all : r.was_any;
}

// A thread has returned: those that wait at the block's barrier may now be complete.
void thread_returned(Block& b) {
  --b.alive;
  Barrier& r = b.barriers[0];
  if (!b.alive || !r.arrived || r.expected || r.arrived != b.alive) return;
  note("threads left before a barrier", Severity::note,
       "some threads of a block returned before the " + at(r.at) +
           " that the others wait at; the barrier then counts only those that are left",
       r.at);
  release(b, r, 0);
}

void grid_barrier(const char* file, int line) {
  require_kernel("grid.sync()");
  Fiber* f = worker->current;
  Block& b = *f->block;
  Job& job = *worker->job;
  Waiting here{"grid.sync()", file, line, 0};
  if (!job.cooperative)
    fail_here("launch refused",
              "grid.sync() needs cudaLaunchCooperativeKernel; this kernel was launched without it",
              here, 0);
  b.grid_fibers.push_back(f);
  if (b.grid_fibers.size() == b.alive) {
    b.grid_waiting = b.alive;
    b.grid_round = job.grid_round.load();
    ++b.barrier_epoch;
    if (observer) observer->block_barrier(b);
    if (job.grid_arrived.fetch_add(1) + 1 + job.finished.load() >= job.blocks) {
      job.grid_arrived.store(0);
      job.grid_round.fetch_add(1);
      count_progress();
    }
  }
  f->waiting = here;
  switch_to(pick(b));
}

void yield() {
  if (!in_kernel()) return;
  Fiber* f = worker->current;
  Block& b = *f->block;
  if (++b.preempted > b.runnable + 1 && b.next_thread == b.threads) {
    b.preempted = 0;
    b.spinning = true;
    push(b, f);
    return switch_to(&worker->main);
  }
  push(b, f);
  switch_to(pick(b));
}

void fence(Scope scope, const void* pc) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (observer && in_kernel()) observer->fence(scope, pc);
}

unsigned long long nanoseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

long long ticks() { return static_cast<long long>(nanoseconds()); }
unsigned processor() { return worker ? worker->number : 0; }

// Who waits at what: one sentence; the line of the block barrier if there is one.
std::string describe_waiting(const Block& b, int* line, int* other_line, const char** file,
                             const Fiber** who) {
  struct Group {
    Waiting at;
    const Fiber* first;
    unsigned count;
  };
  std::vector<Group> groups;
  for (const Fiber* f : b.live) {
    if (f->thread == ~0u) continue;
    bool known = false;
    for (Group& g : groups)
      if (g.at.line == f->waiting.line && !strcmp(g.at.kind, f->waiting.kind)) {
        ++g.count;
        if (f->thread < g.first->thread) g.first = f;
        known = true;
      }
    if (!known) groups.push_back({f->waiting, f, 1});
  }
  std::string text = "deadlock: ";
  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& g = groups[i];
    text += (i ? "; " : "") + std::to_string(g.count) + " threads (first: " +
            thread_name(b.index, g.first->index) + ") wait at the " + at(g.at);
    if (g.at.mask) {
      char mask[24];
      snprintf(mask, sizeof mask, " with mask 0x%08x", g.at.mask);
      text += mask;
    }
    bool chosen = !*who || !strcmp(g.at.kind, "__syncthreads");
    if (*who) *other_line = chosen ? *line : g.at.line;
    if (chosen) *line = g.at.line, *file = g.at.file, *who = g.first;
  }
  return text + "; none can go on";
}

}  // namespace simt
