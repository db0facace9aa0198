// Which addresses are device memory: every allocation the process has told the runtime about.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace simt {

struct Allocation {
  uintptr_t begin = 0, end = 0;
  bool fresh = false;  // filled with the pattern of unwritten memory when it was made
};

void add_allocation(const void* p, size_t bytes, bool fresh);
void drop_allocation(const void* p);
const Allocation* allocation_of(uintptr_t address);

// Empty when [address, address + bytes) is inside an allocation or far from all of them.
std::string outside(uintptr_t address, size_t bytes);

}  // namespace simt
