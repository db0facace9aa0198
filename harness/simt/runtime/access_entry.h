// One access of the running CUDA thread, told before it happens.
#pragma once
#include "../include/simt/site.h"

namespace simt {

enum EntryFlags : unsigned {
  kReads = 1,
  kWrites = 2,
  kIsAtomic = 4,
  kIsVolatile = 8,
  kAligned = 16,  // the address must be a multiple of the size
};

// `pc` lies in the user's code, just behind the access. Does nothing outside a checked kernel.
void on_access(const volatile void* where, unsigned bytes, unsigned flags, const void* pc);
// A pointer is used that is misaligned for its type: ends the launch, inside a checked kernel.
void on_misaligned(const void* where, unsigned alignment, Site);

// An atomic, and a copy made by an intrinsic; headers of checked builds call them.
void on_atomic(const void* where, unsigned bytes, Site);
void on_copy(void* to, const void* from, unsigned bytes, Site);

}  // namespace simt
