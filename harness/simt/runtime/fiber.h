// A fiber is one CUDA thread on a small stack of its own; switching saves callee-saved registers.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../include/simt/site.h"

namespace simt {

struct Block;
struct Meet;

enum class State : uint8_t { kRunning, kAtBarrier, kAtMeet, kAtGrid, kSpinning, kGathering, kDone };

constexpr size_t kStackBytes = 128 * 1024;

struct Fiber {
  void* sp = nullptr;
  char* stack = nullptr;  // lowest usable byte; a guard page lies below
  Block* block = nullptr;
  Fiber* next = nullptr;
  Meet* meet = nullptr;
  Site at;                // where it waits
  const void* pc = nullptr;  // where it was preempted, instead of `at`
  unsigned group = 0;     // lanes gathered with it
  unsigned tid = 0;       // linear index in the block
  size_t slot = 0;        // in its block's list of live fibers
  State state = State::kDone;

  bool owns(const void* p) const {
    auto c = static_cast<const char*>(p);
    return c >= stack && c < stack + kStackBytes;
  }
};

Fiber* new_fiber();           // maps a stack; throws std::bad_alloc
void reset_fiber(Fiber*);     // next switch starts fiber_entry afresh
void fiber_entry();           // defined by the scheduler; never returns

extern "C" void simt_switch(void** save, void* to);

}  // namespace simt
