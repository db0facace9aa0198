// Ending a launch early: faults of kernels, hardware signals, and the watch over spinning threads.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "machine.h"
#include "simt/sync.h"

namespace simt {

static std::mutex fault_lock;

bool in_kernel() { return worker && worker->current->block && worker->current->thread != ~0u; }
unsigned current_thread() { return worker->current->thread; }
const BlockView& current_block() { return *worker->current->block; }
unsigned warp_epoch(unsigned w) { return worker->current->block->warps[w].epoch; }

bool on_stack(const void* address) {
  if (!in_kernel()) return true;
  auto* a = static_cast<const char*>(address);
  const char* low = worker->current->stack;
  return a >= low && a < low + kStackBytes;
}

static std::string triple(const uint3& v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}
std::string thread_name(const uint3& block, const uint3& thread) {
  return "block " + triple(block) + " thread " + triple(thread);
}

void record_fault(Job& job, FaultRecord r) {
  std::lock_guard<std::mutex> hold(fault_lock);
  if (!job.fault.set) {
    r.set = true;
    r.kernel = job.launch.kernel;
    if (!r.line && !r.pc && job.launch.file) r.line = job.launch.line, r.file = job.launch.file;
    if (!r.in_block && in_kernel()) {
      r.in_block = true;
      r.block = worker->current->block->index;
      r.thread = worker->current->index;
    }
    job.fault = std::move(r);
  }
  job.abort.store(true);
}

void leave_kernel() {
  switch_to(&worker->main);
  __builtin_unreachable();
}

void fail(const char* kind, const char* message, const char* file, int line, const void* pc,
          int other_line) {
  FaultRecord r;
  r.kind = kind;
  r.message = message;
  r.file = file ? file : "";
  r.line = line;
  r.other_line = other_line;
  r.pc = pc;
  if (in_kernel()) {
    record_fault(*worker->job, r);
    leave_kernel();
  }
  r.set = true;
  note_fault(r);
  throw std::runtime_error(message);
}

static std::string here() {
  return thread_name(worker->current->block->index, worker->current->index);
}

void trap(const char* file, int line) {
  std::string where = in_kernel() ? here() : "the host";
  fail("trap", ("__trap() by " + where).c_str(), file, line);
}

void assertion_failed(const char* text, const char* file, int line) {
  if (!in_kernel()) {
    fprintf(stderr, "%s:%d: assertion `%s' failed\n", file, line, text);
    abort();
  }
  fail("assertion failed", ("assertion `" + std::string(text) + "` failed in " + here()).c_str(),
       file, line);
}

// ---- hardware signals -------------------------------------------------------------------------

static std::string explain_address(uintptr_t a) {
  char hex[32];
  snprintf(hex, sizeof hex, "0x%zx", size_t(a));
  Fiber* f = worker->current;
  if (a < 65536) return std::string("address ") + hex + ": a null pointer, or a small number used as one";
  uintptr_t low = reinterpret_cast<uintptr_t>(f->stack);
  if (a >= low - 4096 && a < low) return "its local variables need more than 256 KiB";
  Block& b = *f->block;
  uintptr_t arena = reinterpret_cast<uintptr_t>(b.arena), end = reinterpret_cast<uintptr_t>(b.arena_end);
  if (a >= arena - 4096 && a < end + 4096) return std::string("address ") + hex + ": outside shared memory";
  return std::string("address ") + hex + ": no memory there";
}

// Runs on the faulting fiber's own stack, in normal context.
static void after_signal() {
  Worker& w = *worker;
  FaultRecord r;
  r.pc = reinterpret_cast<void*>(w.signal_pc + 1);
  if (w.signal == SIGFPE) {
    r.kind = "division by zero";
    r.message = "integer division by zero in " + here() + " (a GPU goes on with an undefined value)";
  } else if (w.signal == SIGILL) {
    r.kind = "trap";
    r.message = "illegal instruction in " + here();
  } else {
    r.kind = "illegal address";
    r.message = "illegal memory access by " + here() + ", " + explain_address(w.signal_address);
  }
  record_fault(*w.job, r);
  leave_kernel();
}

#if defined(__x86_64__)
static auto& program_counter(ucontext_t* c) { return c->uc_mcontext.gregs[REG_RIP]; }
static auto& stack_pointer(ucontext_t* c) { return c->uc_mcontext.gregs[REG_RSP]; }
#else
static auto& program_counter(ucontext_t* c) { return c->uc_mcontext.pc; }
static auto& stack_pointer(ucontext_t* c) { return c->uc_mcontext.sp; }
#endif

static struct sigaction previous[65];

static void on_fault(int number, siginfo_t* info, void* context) {
  if (in_kernel()) {
    Worker& w = *worker;
    auto* c = static_cast<ucontext_t*>(context);
    w.signal = number;
    w.signal_address = reinterpret_cast<uintptr_t>(info->si_addr);
    w.signal_pc = program_counter(c);
    program_counter(c) = reinterpret_cast<uintptr_t>(&after_signal);
    // what lay on the stack is given up with the fiber
    stack_pointer(c) = reinterpret_cast<uintptr_t>(w.current->stack + kStackBytes - 1024) / 64 * 64 - 8;
    return;
  }
  struct sigaction& old = previous[number];
  if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(number, info, context);
  if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) return old.sa_handler(number);
  sigaction(number, &old, nullptr);  // the instruction runs again and ends the process
}

// ---- watch over threads that do not wait anywhere -----------------------------------------------

constexpr int kTick = SIGURG;  // ignored by default

// A spinning thread is put at the end of the queue from inside the signal's handler; its
// registers stay in the signal's frame on its own stack.
static void on_tick(int, siginfo_t*, void* context) {
  int saved_errno = errno;
  if (!in_kernel()) return;
  Worker& w = *worker;
  uintptr_t pc = program_counter(static_cast<ucontext_t*>(context));
  if (!w.job->code.contains(pc)) return;
  if (w.job->stalled.load()) {
    w.signal_pc = pc;
    FaultRecord r;
    r.kind = "no progress";
    r.pc = reinterpret_cast<void*>(pc + 1);
    uint64_t waiting = w.job->blocks - std::min<uint64_t>(w.job->next.load(), w.job->blocks);
    r.message = "no thread of the kernel got anywhere for " +
                std::to_string(int(settings.stall_seconds)) + " s; " + here() +
                " runs in a loop here, waiting for something that does not happen" +
                (waiting ? " (" + std::to_string(waiting) +
                               " blocks have not started: a GPU does not promise to run them at "
                               "the same time)"
                         : "");
    record_fault(*w.job, r);
    leave_kernel();
  }
  yield();
  errno = saved_errno;
}

static std::mutex watch_lock;
static Job* watched = nullptr;
static bool watching = false;

static void kick(Worker* w) {
  uint64_t now = w->switches.load(std::memory_order_relaxed);
  if (w->running.load() && w->seen == now) pthread_kill(w->thread, kTick);
  w->seen = now;
}

static void watch_loop() {
  uint64_t last_progress = 0;
  Job* last_job = nullptr;
  unsigned long long since = nanoseconds();
  for (;;) {
    usleep(5000);
    std::lock_guard<std::mutex> hold(watch_lock);
    if (!watched) {
      last_job = nullptr;
      continue;
    }
    uint64_t progress = 0;
    for (Worker* w : workers()) progress += w->progress.load(std::memory_order_relaxed);
    unsigned long long now = nanoseconds();
    if (watched != last_job || progress != last_progress) since = now;
    last_job = watched;
    last_progress = progress;
    if (double(now - since) * 1e-9 > settings.stall_seconds) watched->stalled.store(true);
    for (Worker* w : workers()) kick(w);
  }
}

void watch(Job* job) {
  std::lock_guard<std::mutex> hold(watch_lock);
  watched = job;
  if (job && !watching) {
    watching = true;
    std::thread(watch_loop).detach();
  }
}

void forget_watch_after_fork() { watching = false; }

static void install(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction now, a;
  sigaction(number, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handler) return;
  previous[number] = now;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = handler;
  a.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART | flags;
  sigemptyset(&a.sa_mask);
  sigaction(number, &a, nullptr);
}

void install_handlers() {
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) install(number, on_fault, SA_ONSTACK);
  install(kTick, on_tick, 0);
}

void prepare_worker_signals(Worker& w) {
  w.thread = pthread_self();
  stack_t now;
  sigaltstack(nullptr, &now);
  if (!(now.ss_flags & SS_DISABLE)) return;
  if (!w.signal_stack)
    w.signal_stack = static_cast<char*>(mmap(nullptr, 65536, PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  stack_t s{};
  s.ss_sp = w.signal_stack;
  s.ss_size = 65536;
  sigaltstack(&s, nullptr);
  sigset_t tick;
  sigemptyset(&tick);
  sigaddset(&tick, kTick);
  pthread_sigmask(SIG_UNBLOCK, &tick, nullptr);
}

// ---- code of the module that a kernel lies in ---------------------------------------------------

static int find_segment(dl_phdr_info* info, size_t, void* data) {
  auto* code = static_cast<Code*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& p = info->dlpi_phdr[i];
    if (p.p_type != PT_LOAD || !(p.p_flags & PF_X)) continue;
    uintptr_t from = info->dlpi_addr + p.p_vaddr;
    if (code->begin >= from && code->begin < from + p.p_memsz) {
      code->begin = from;
      code->end = from + p.p_memsz;
      return 1;
    }
  }
  return 0;
}

Code code_around(const void* address) {
  static thread_local Code last;
  auto a = reinterpret_cast<uintptr_t>(address);
  if (last.contains(a)) return last;
  Code code{a, a};
  if (dl_iterate_phdr(find_segment, &code)) last = code;
  return last;
}

}  // namespace simt
