// OS threads that run blocks beside the calling one. They live as long as the process.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "machine.h"

namespace simt {

Settings settings;

namespace {
std::mutex lock;
std::condition_variable wake, finished;
Job* job = nullptr;
uint64_t round = 0;
unsigned wanted = 0, busy = 0, started = 0;
pid_t owner = 0;
}  // namespace

void forget_watch_after_fork();

std::vector<Worker*>& workers() {
  static auto* all = new std::vector<Worker*>;
  return *all;
}

unsigned worker_count() {
  if (settings.workers) return std::min(settings.workers, 256u);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set)) return 1;
  return std::clamp(CPU_COUNT(&set), 1, 256);
}

static void serve(Worker* w) {
  prepare_worker_signals(*w);
  uint64_t seen = 0;
  for (;;) {
    Job* mine;
    {
      std::unique_lock<std::mutex> hold(lock);
      wake.wait(hold, [&] { return round != seen; });
      seen = round;
      if (w->number >= wanted) continue;
      mine = job;
    }
    run_blocks(*w, *mine);
    worker = nullptr;
    std::lock_guard<std::mutex> hold(lock);
    if (--busy == 0) finished.notify_one();
  }
}

static void add_workers(unsigned count) {
  if (owner != getpid()) {  // a fork has none of its parent's threads
    owner = getpid();
    started = 0;
    workers().clear();
    forget_watch_after_fork();
  }
  while (workers().size() < count) {
    auto* w = new Worker;
    w->number = unsigned(workers().size());
    workers().push_back(w);
    if (w->number) std::thread(serve, w).detach();
  }
}

void run_on_workers(Job& j) {
  uint64_t total = j.blocks * j.threads;
  unsigned count = total < 4096 ? 1 : unsigned(std::min<uint64_t>(worker_count(), j.blocks));
  if (observer) count = 1;
  {
    std::lock_guard<std::mutex> hold(lock);
    add_workers(count);
    wanted = count;
    busy = count - 1;
    job = &j;
    if (count > 1) ++round;
  }
  if (count > 1) wake.notify_all();
  Worker& w = *workers()[0];
  prepare_worker_signals(w);
  watch(&j);
  run_blocks(w, j);
  worker = nullptr;
  std::unique_lock<std::mutex> hold(lock);
  finished.wait(hold, [] { return busy == 0; });
  job = nullptr;
  hold.unlock();
  watch(nullptr);
}

}  // namespace simt

extern "C" SIMT_API void simt_configure(unsigned workers, uint64_t seed, double stall_seconds) {
  simt::settings.workers = workers;
  simt::settings.seed = seed;
  if (stall_seconds > 0) simt::settings.stall_seconds = stall_seconds;
}
