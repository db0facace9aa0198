// A launch: checks its limits, shares its blocks between OS threads, raises its fault.
#include "../include/simt/launch.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "access.h"
#include "block.h"
#include "limits.h"
#include "report.h"

namespace simt {

// Code of loaded solutions: the only place where a running thread may be preempted.
struct CodeRange {
  const char* begin;
  const char* end;
};
static std::vector<CodeRange> user_code;

bool is_user_code(const void* pc) {
  for (const CodeRange& r : user_code)
    if (pc >= r.begin && pc < r.end) return true;
  return false;
}

static int add_code_of(dl_phdr_info* info, size_t, void* address) {
  const char* base = reinterpret_cast<const char*>(info->dlpi_addr);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& p = info->dlpi_phdr[i];
    if (p.p_type != PT_LOAD || !(p.p_flags & PF_X)) continue;
    const CodeRange r{base + p.p_vaddr, base + p.p_vaddr + p.p_memsz};
    if (address < r.begin || address >= r.end) continue;
    user_code.push_back(r);
    return 1;
  }
  return 0;
}

struct Pool {
  std::mutex mutex;
  std::condition_variable wake, finished;
  std::vector<Worker*> workers;  // [0] is the calling thread's
  Launch* launch = nullptr;
  unsigned wanted = 0, running = 0;
  unsigned long long round = 0;
  bool watching = false;
};

static Pool& pool() {
  static Pool* p = new Pool;  // never destroyed: its threads outlive main
  return *p;
}

static void enter_thread(Worker& w) {
  w.thread_id = pthread_self();
  w.progress = &simt_progress;
  prepare_thread_for_signals();
}

static void serve(Worker* w, unsigned index) {
  Pool& p = pool();
  enter_thread(*w);
  unsigned long long seen = 0;
  for (;;) {
    std::unique_lock<std::mutex> lock(p.mutex);
    p.wake.wait(lock, [&] { return p.round != seen && p.launch; });
    seen = p.round;
    Launch* l = index < p.wanted ? p.launch : nullptr;
    if (!l) continue;
    lock.unlock();
    work(*w, *l);
    lock.lock();
    if (--p.running == 0) p.finished.notify_all();
  }
}

static void watch() {
  Pool& p = pool();
  std::unique_lock<std::mutex> lock(p.mutex);
  for (;;) {
    p.wake.wait(lock, [&] { return p.launch != nullptr; });
    for (Worker* w : p.launch->workers) {
      const unsigned long long now = w->switches + *w->progress;
      if (now == w->seen && w->in_fiber) pthread_kill(w->thread_id, SIGRTMIN + 5);
      w->seen = now;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lock.lock();
  }
}

static unsigned wanted_workers(const Launch& l) {
  if (l.kernel.checked || settings().seed) return 1;
  if (l.blocks * l.threads < 4096) return 1;
  return std::min<uint64_t>(settings().os_threads, l.blocks);
}

static void grow(Pool& p, unsigned n) {
  while (p.workers.size() < n) {
    Worker* w = new Worker;
    static unsigned long long zero = 0;
    w->progress = &zero;
    p.workers.push_back(w);
    if (p.workers.size() == 1)
      enter_thread(*w);
    else
      std::thread(serve, w, unsigned(p.workers.size() - 1)).detach();
  }
  if (!p.watching) std::thread(watch).detach();
  p.watching = true;
}

static void run(Launch& l) {
  Pool& p = pool();
  {
    std::lock_guard<std::mutex> lock(p.mutex);
    const unsigned n = wanted_workers(l);
    grow(p, n);
    p.workers[0]->thread_id = pthread_self();
    p.workers[0]->progress = &simt_progress;
    l.workers.assign(p.workers.begin(), p.workers.begin() + n);
    p.wanted = n;
    p.running = n - 1;
    p.launch = &l;
    ++p.round;
  }
  p.wake.notify_all();
  work(*p.workers[0], l);
  std::unique_lock<std::mutex> lock(p.mutex);
  p.finished.wait(lock, [&] { return p.running == 0; });
  p.launch = nullptr;
}

static void throw_fault(const Fault& f) {
  std::string message = f.kind + ": " + f.message;
  if (f.line) message += " at " + f.file + ":" + std::to_string(f.line);
  message += " in kernel " + f.kernel + ", block " + text(f.block) + ", thread " + text(f.thread);
  throw std::runtime_error(message);
}

static bool refused(const Config& c, const Kernel& k) {
  const std::string why = refusal(c, k.name);
  if (why.empty()) return false;
  set_error(cudaErrorInvalidConfiguration);
  find("launch refused", "error", "the device would refuse to launch " + std::string(k.name) +
       ": " + why, Site{"", k.file, k.line});
  return true;
}

static void order_blocks(Launch& l) {
  if (!settings().seed || l.blocks > 1u << 24) return;
  l.block_order.resize(l.blocks);
  std::iota(l.block_order.begin(), l.block_order.end(), 0u);
  std::shuffle(l.block_order.begin(), l.block_order.end(), std::mt19937(settings().seed));
}

void run_grid(const Config& config, const Kernel& kernel, Body body, void* arg) {
  if (in_kernel()) needs_gpu("launch from a kernel", Site{"", kernel.file, kernel.line});
  note_launch(kernel);
  if (refused(config, kernel)) return;
  install_signals();
  prepare_thread_for_signals();
  if (!is_user_code(reinterpret_cast<void*>(body)))
    dl_iterate_phdr(add_code_of, reinterpret_cast<void*>(body));
  Launch l{config, kernel, body, arg};
  l.blocks = uint64_t(config.grid.x) * config.grid.y * config.grid.z;
  l.threads = config.block.x * config.block.y * config.block.z;
  l.max_resident = resident_limit(config, l.threads, 0);
  order_blocks(l);
  count_launch();
  if (kernel.checked) access_begin_launch(l);
  run(l);
  if (kernel.checked) access_end_launch(l);
  fflush(stdout);
  if (!l.stopped) return;
  peek_error();  // the fault itself is the answer to any check
  keep_fault(l.fault);
  throw_fault(l.fault);
}

}  // namespace simt
