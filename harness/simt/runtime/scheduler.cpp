// Which thread of which block runs next. A block's threads take turns only where they wait.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <exception>

#include "machine.h"

namespace simt {

void push(Block& b, Fiber* f) {
  f->next = nullptr;
  f->waiting.kind = "";
  if (b.tail) b.tail->next = f;
  else b.head = f;
  b.tail = f;
  ++b.runnable;
}

Fiber* pick(Block& b) {
  Worker& w = *worker;
  if (w.job->abort.load(std::memory_order_relaxed)) return &w.main;
  if (!b.head && b.next_thread == b.threads && b.converging) release_converging(b);
  if (Fiber* f = b.head) {
    b.head = f->next;
    if (!b.head) b.tail = nullptr;
    --b.runnable;
    return f;
  }
  if (b.next_thread == b.threads) return &w.main;  // finished, at the grid's barrier, or deadlocked
  Fiber* f = take_fiber(w);
  if (!f) {
    FaultRecord r;
    r.kind = "needs a GPU";
    r.message = "too many threads wait at the same time for the CPU's memory";
    record_fault(*w.job, r);
    return &w.main;
  }
  f->block = &b;
  f->place = unsigned(b.live.size());
  b.live.push_back(f);
  return f;
}

void park(const Waiting& at) {
  Fiber* f = worker->current;
  f->waiting = at;
  switch_to(pick(*f->block));
}

static uint3 thread_index(unsigned t) {
  unsigned x = blockDim.x, y = blockDim.y;
  return uint3{t % x, t / x % y, t / (x * y)};
}

static void run_thread(Job& job) {
  FaultRecord r;
  try {
    job.body(job.arguments);
    return;
  } catch (const std::exception& e) {
    r.message = std::string("the kernel threw: ") + e.what();
  } catch (...) {
    r.message = "the kernel threw an exception";
  }
  r.kind = "exception";
  record_fault(job, r);
}

// A fiber runs threads one after another; one that waits keeps the fiber, and the next starts on
// another. Released threads go first, which keeps the number of stacks small.
void fiber_main() {
  for (;;) {
    Worker& w = *worker;
    Fiber& self = *w.current;
    Block& b = *self.block;
    while (b.next_thread < b.threads && !w.job->abort.load(std::memory_order_relaxed)) {
      unsigned t = b.next_thread++;
      if (!w.job->thread_order.empty()) t = w.job->thread_order[t];
      self.thread = t;
      self.index = threadIdx = thread_index(t);
      run_thread(*w.job);
      self.thread = ~0u;
      count_progress();
      lane_returned(b, b.warps[t / kWarp], t);
      thread_returned(b);
      if (b.head) break;
    }
    w.idle.push_back(&self);
    b.live[self.place] = b.live.back();
    b.live[self.place]->place = self.place;
    b.live.pop_back();
    switch_to(pick(b));
  }
}

static Block* new_block(Worker& w) {
  if (!w.spare.empty()) {
    Block* b = w.spare.back();
    w.spare.pop_back();
    return b;
  }
  Block* b = new Block();
  size_t bytes = kDynamicLimit + kStaticLimit + 64 * 1024;
  void* m = mmap(nullptr, bytes + 8192, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  b->memory = static_cast<char*>(m) + 4096;
  mprotect(m, 4096, PROT_NONE);
  mprotect(b->memory + bytes, 4096, PROT_NONE);
  b->arena = b->memory;
  b->arena_end = b->memory + bytes;
  return b;
}

static std::atomic<uint64_t> block_serial{0};

static void start_block(Block& b, Job& job, uint64_t number) {
  const dim3 g = job.launch.grid;
  if (!job.block_order.empty()) number = job.block_order[number];
  b.launch = &job.launch;
  b.index = uint3{unsigned(number % g.x), unsigned(number / g.x % g.y), unsigned(number / g.x / g.y)};
  b.serial = block_serial.fetch_add(1, std::memory_order_relaxed) + 1;
  b.threads = b.alive = job.threads;
  b.barrier_epoch = 0;
  b.next_thread = b.converging = b.grid_waiting = b.runnable = b.preempted = 0;
  b.grid_round = 0;
  b.head = b.tail = nullptr;
  b.spinning = false;
  for (Barrier& r : b.barriers) {
    r.arrived = r.expected = 0;
    r.fibers.clear();
    r.all = 1, r.any = r.count = 0;
  }
  b.warps.resize((b.threads + kWarp - 1) / kWarp);
  for (size_t i = 0; i < b.warps.size(); ++i) {
    unsigned lanes = b.threads - unsigned(i) * kWarp;
    b.warps[i].alive = lanes >= kWarp ? 0xffffffffu : (1u << lanes) - 1;
    b.warps[i].epoch = 0;
    b.warps[i].open.clear();
    b.warps[i].converging.clear();
  }
  b.grid_fibers.clear();
  b.live.clear();
  b.variables.clear();
  b.shared = nullptr;
  b.shared_count = 0;
  b.used = b.static_bytes = 0;
  if (job.launch.dynamic_shared) memset(b.memory, 0xff, job.launch.dynamic_shared);
  b.used = job.launch.dynamic_shared;
  if (observer) observer->block_begin(b);
}

static void drop_block(Worker& w, Block& b) {
  for (Fiber* f : b.live) {
    reset_fiber(*f);
    w.idle.push_back(f);
  }
  for (Warp& warp : b.warps)
    for (Meeting* m : warp.open) w.meetings.push_back(m);
  b.live.clear();
  w.spare.push_back(&b);
}

static void report_deadlock(Job& job, const Block& b) {
  FaultRecord r;
  const char* file = nullptr;
  const Fiber* who = nullptr;
  r.message = describe_waiting(b, &r.line, &r.other_line, &file, &who);
  r.kind = "deadlock";
  r.file = file ? file : "";
  if (who) {
    r.in_block = true;
    r.block = b.index;
    r.thread = who->index;
  }
  record_fault(job, r);
}

// One turn of a block. Returns true when all its threads have returned.
static bool run_block(Worker& w, Job& job, Block& b) {
  blockIdx = b.index;
  blockDim = job.launch.block;
  gridDim = job.launch.grid;
  b.spinning = false;
  switch_to(pick(b));
  if (job.abort.load(std::memory_order_relaxed)) return false;
  if (b.alive == 0) return true;
  if (b.spinning || b.grid_waiting) return false;
  report_deadlock(job, b);
  return false;
}

static bool grid_complete(Job& job) {
  uint64_t waiting = job.grid_arrived.load(), done = job.finished.load();
  if (waiting + done < job.blocks) return false;
  if (done) {
    FaultRecord r;
    r.kind = "diverged barrier";
    r.message = std::to_string(done) + " blocks returned without the grid's barrier that the other " +
                std::to_string(waiting) + " wait at; on a GPU this hangs";
    record_fault(job, r);
  }
  return true;
}

static void release_grid(Job& job, Block& b) {
  uint64_t round = job.grid_round.load();
  if (!b.grid_waiting || b.grid_round == round) return;
  b.grid_waiting = 0;
  for (Fiber* f : b.grid_fibers) push(b, f);
  b.grid_fibers.clear();
}

// Next block for this worker: one that can go on, else a new one while the real device would hold
// it at the same time, else nullptr.
static Block* next_block(Worker& w, Job& job) {
  bool all_spin = true;
  for (Block* b : w.resident) {
    release_grid(job, *b);
    if (!b->grid_waiting && !b->spinning) all_spin = false;
  }
  bool fresh = w.resident.empty() || (all_spin && (w.turn++ & 1));
  if (fresh && job.resident.load() < job.residency) {
    job.resident.fetch_add(1);
    uint64_t n = job.next.fetch_add(1);
    if (n < job.blocks) {
      Block* b = new_block(w);
      start_block(*b, job, n);
      w.resident.push_back(b);
      return b;
    }
    job.resident.fetch_sub(1);
    job.next.store(job.blocks);
  }
  for (size_t i = 0; i < w.resident.size(); ++i) {
    Block* b = w.resident[i];
    if (b->grid_waiting) continue;
    w.resident.erase(w.resident.begin() + i);  // to the end: they take turns
    w.resident.push_back(b);
    return b;
  }
  return nullptr;
}

static void finish_block(Worker& w, Job& job, Block* b) {
  if (observer) observer->block_end(*b);
  for (size_t i = 0; i < w.resident.size(); ++i)
    if (w.resident[i] == b) w.resident.erase(w.resident.begin() + i);
  drop_block(w, *b);
  job.resident.fetch_sub(1);
  job.finished.fetch_add(1);
  if (job.cooperative && job.grid_arrived.load()) grid_complete(job);
}

void run_blocks(Worker& w, Job& job) {
  w.job = &job;
  worker = &w;
  w.running.store(true);
  while (!job.abort.load(std::memory_order_relaxed)) {
    Block* b = next_block(w, job);
    if (!b) {
      if (w.resident.empty() && (job.next.load() >= job.blocks || !job.cooperative)) break;
      usleep(50);  // the rest of the grid has yet to reach its barrier
      continue;
    }
    if (run_block(w, job, *b)) finish_block(w, job, b);
  }
  for (Block* b : w.resident) drop_block(w, *b);
  w.resident.clear();
  w.running.store(false);
  w.current = &w.main;
  w.job = nullptr;
}

}  // namespace simt
