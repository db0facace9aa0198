// Stacks and the switch between them: about 20 instructions, callee-saved registers only.
#include <sys/mman.h>

#include <cstring>

#include "machine.h"

extern "C" void simt_switch(void** save, void* to) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,%function
simt_switch:
  sub sp,sp,#160
  stp x19,x20,[sp,#0]
  stp x21,x22,[sp,#16]
  stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]
  stp x27,x28,[sp,#64]
  stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x2,sp
  str x2,[x0]
  mov sp,x1
  ldp x19,x20,[sp,#0]
  ldp x21,x22,[sp,#16]
  ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]
  ldp x27,x28,[sp,#64]
  ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  add sp,sp,#160
  ret
)");
#else
#error "simt: the switch between threads is written for x86-64 and aarch64"
#endif

__thread uint3 threadIdx SIMT_TLS;
__thread uint3 blockIdx SIMT_TLS;
__thread dim3 blockDim SIMT_TLS;
__thread dim3 gridDim SIMT_TLS;

namespace simt {

__thread Worker* worker __attribute__((tls_model("initial-exec")));
static std::atomic<unsigned> fibers{0};

void reset_fiber(Fiber& f) {
  // Different cache sets for the hot ends of the stacks: they are all page-aligned otherwise.
  size_t colour = (reinterpret_cast<uintptr_t>(f.stack) / (kStackBytes + 4096)) % 13 * 320;
  void** sp = reinterpret_cast<void**>(f.stack + kStackBytes - 64 - colour);
#if defined(__x86_64__)
  *--sp = nullptr;
  *--sp = reinterpret_cast<void*>(fiber_main);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
#else
  sp -= 20;
  memset(sp, 0, 160);
  sp[11] = reinterpret_cast<void*>(fiber_main);
#endif
  f.sp = sp;
  f.thread = ~0u;
  f.block = nullptr;
  f.next = nullptr;
  f.waiting = Waiting{};
}

Fiber* take_fiber(Worker& w) {
  if (!w.idle.empty()) {
    Fiber* f = w.idle.back();
    w.idle.pop_back();
    return f;
  }
  if (fibers.fetch_add(1) >= kMaxFibers) return nullptr;
  void* m = mmap(nullptr, kStackBytes + 4096, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED) return nullptr;
  mprotect(m, 4096, PROT_NONE);  // an overflow faults
  Fiber* f = new Fiber;
  f->stack = static_cast<char*>(m) + 4096;
  reset_fiber(*f);
  return f;
}

void switch_to(Fiber* to) {
  Worker& w = *worker;
  Fiber* from = w.current;
  if (to == from) return;
  w.current = to;
  w.switches.store(w.switches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  simt_switch(&from->sp, to->sp);
  threadIdx = from->index;
}

void count_progress() {
  Worker& w = *worker;
  w.progress.store(w.progress.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace simt
