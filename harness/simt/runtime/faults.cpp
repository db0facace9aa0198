// The first fault of a launch ends it. Signals of broken memory accesses become faults as well.
#include <signal.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "block.h"

namespace simt {

std::string text(uint3 v) {
  return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
}

void stop(Launch& l, const char* kind, const std::string& message, const Fiber* f, Site site,
          const void* pc) {
  std::lock_guard<std::mutex> lock(l.mutex);
  if (l.stopped.load()) return;
  Fault& t = l.fault;
  t.kind = kind;
  t.message = message;
  t.kernel = l.kernel.name;
  t.file = site.file;
  t.line = site.line;
  t.pc = pc;
  if (f && f->block) {
    t.block = f->block->index;
    t.thread = thread_index(f->tid, l.config.block);
  }
  l.stopped = true;
}

void fault(const char* kind, const char* message, Site site) {
  stop(*tls_worker->current->launch, kind, message, tls_self, site, nullptr);
  abandon();
}

void needs_gpu(const char* construct, Site site) { fault("needs a GPU", construct, site); }

static struct sigaction old_segv, old_bus, old_fpe;

static void** program_counter(ucontext_t* c) {
#if defined(__x86_64__)
  return reinterpret_cast<void**>(&c->uc_mcontext.gregs[REG_RIP]);
#else
  return reinterpret_cast<void**>(&c->uc_mcontext.pc);
#endif
}

static void continue_at_abandon(ucontext_t* c) {
  const uintptr_t top = reinterpret_cast<uintptr_t>(tls_self->stack) + kStackBytes - 64;
  *program_counter(c) = reinterpret_cast<void*>(&abandon);
#if defined(__x86_64__)
  c->uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>((top & ~uintptr_t(15)) - 8);
#else
  c->uc_mcontext.sp = top & ~uintptr_t(15);
#endif
}

static std::string describe(int signal, const siginfo_t* info) {
  if (signal == SIGFPE) return "integer division by zero";
  const char* a = static_cast<const char*>(info->si_addr);
  if (a < tls_self->stack && a >= tls_self->stack - 4096) return "the thread's stack overflowed";
  char text[96];
  snprintf(text, sizeof text, "the address %p is not mapped", info->si_addr);
  return text;
}

static void on_broken_access(int signal, siginfo_t* info, void* context) {
  ucontext_t* c = static_cast<ucontext_t*>(context);
  if (!in_kernel()) {
    sigaction(signal, signal == SIGSEGV ? &old_segv : signal == SIGBUS ? &old_bus : &old_fpe,
              nullptr);
    return;
  }
  const char* kind = signal == SIGFPE ? "division by zero" : "out of bounds";
  stop(*tls_worker->current->launch, kind, describe(signal, info), tls_self, Site{},
       *program_counter(c));
  continue_at_abandon(c);
}

// The watchdog's signal: a fiber that runs on and on lets the others of its OS thread run.
static void on_preempt(int, siginfo_t*, void* context) {
  if (!in_kernel()) return;
  void* pc = *program_counter(static_cast<ucontext_t*>(context));
  extern bool is_user_code(const void*);
  if (!is_user_code(pc)) return;
  Block& b = *tls_worker->current;
  b.spinning.push(tls_self);
  tls_self->state = State::kSpinning;
  tls_self->at = Site{"a loop", "", 0};
  tls_self->pc = pc;
  suspend();
}

void install_signals() {
  static bool done = false;
  if (done) return;
  done = true;
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = on_broken_access;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &a, &old_segv);
  sigaction(SIGBUS, &a, &old_bus);
  sigaction(SIGFPE, &a, &old_fpe);
  a.sa_sigaction = on_preempt;
  a.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigaction(SIGRTMIN + 5, &a, nullptr);
}

void prepare_thread_for_signals() {
  static thread_local bool done = false;
  if (done) return;
  done = true;
  stack_t now;
  if (sigaltstack(nullptr, &now) == 0 && !(now.ss_flags & SS_DISABLE)) return;
  stack_t s{};
  s.ss_size = 64 * 1024;
  s.ss_sp = malloc(s.ss_size);
  sigaltstack(&s, nullptr);
}

}  // namespace simt
