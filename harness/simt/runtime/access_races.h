// Races and reads of memory that nobody wrote, by the shadow cells of what is accessed.
#pragma once
#include <cstdint>

#include "../include/simt/site.h"
#include "access_memory.h"

namespace simt {

struct Access {
  uintptr_t address;
  unsigned bytes;
  bool writes, reads, atomic;
  uint32_t site;
};

void races_begin_launch();
// Before the access happens; memory is what it falls into, block and thread who does it.
void check_cells(const Access&, Memory&, Block&, unsigned thread);
// A store of the same value by two threads is no race: what the last store left is looked at now.
void settle_pending();
// Reads of what nobody had written: of one block that ends, or (nullptr) of the launch.
void settle_unwritten(const Block* only);

const void* pc_of_site(uint32_t site);  // nullptr where the place is known by line
Site place_of_site(uint32_t site);

}  // namespace simt
