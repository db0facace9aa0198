#include "fiber.h"

#include <sys/mman.h>

#include <new>

#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size simt_switch,.-simt_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,%function
simt_switch:
  sub sp,sp,#160
  stp x19,x20,[sp,#0]; stp x21,x22,[sp,#16]; stp x23,x24,[sp,#32]
  stp x25,x26,[sp,#48]; stp x27,x28,[sp,#64]; stp x29,x30,[sp,#80]
  stp d8,d9,[sp,#96]; stp d10,d11,[sp,#112]; stp d12,d13,[sp,#128]; stp d14,d15,[sp,#144]
  mov x2,sp
  str x2,[x0]
  mov sp,x1
  ldp x19,x20,[sp,#0]; ldp x21,x22,[sp,#16]; ldp x23,x24,[sp,#32]
  ldp x25,x26,[sp,#48]; ldp x27,x28,[sp,#64]; ldp x29,x30,[sp,#80]
  ldp d8,d9,[sp,#96]; ldp d10,d11,[sp,#112]; ldp d12,d13,[sp,#128]; ldp d14,d15,[sp,#144]
  add sp,sp,#160
  ret
.size simt_switch,.-simt_switch
)");
#else
#error "simt_switch is written for x86-64 and aarch64 only"
#endif

namespace simt {

constexpr size_t kGuardBytes = 4096;

Fiber* new_fiber() {
  void* map = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  mprotect(map, kGuardBytes, PROT_NONE);
  Fiber* fiber = new Fiber;
  fiber->stack = static_cast<char*>(map) + kGuardBytes;
  reset_fiber(fiber);
  return fiber;
}

void reset_fiber(Fiber* fiber) {
  void** sp = reinterpret_cast<void**>(fiber->stack + kStackBytes);
#if defined(__x86_64__)
  *--sp = nullptr;  // keeps the stack aligned as after a call
  *--sp = reinterpret_cast<void*>(&fiber_entry);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
#else
  sp -= 20;
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[11] = reinterpret_cast<void*>(&fiber_entry);
#endif
  fiber->sp = sp;
  fiber->state = State::kDone;
  fiber->meet = nullptr;
  fiber->pc = nullptr;
}

}  // namespace simt
