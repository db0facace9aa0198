// One access of the running CUDA thread, told before it happens.
#pragma once

namespace simt {

enum EntryFlags : unsigned {
  kReads = 1,
  kWrites = 2,
  kIsAtomic = 4,
  kIsVolatile = 8,
  kAligned = 16,  // the compiler took the address for a multiple of its size
};

// `pc` lies in the user's code, just behind the access. Does nothing outside a checked kernel.
void on_access(const volatile void* where, unsigned bytes, unsigned flags, const void* pc);

}  // namespace simt
