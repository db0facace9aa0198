// The checked mode: every load and store of a kernel comes by here.
#pragma once
#include <cstdint>

#include "../include/simt/site.h"
#include "shadow.h"

namespace simt {

struct Block;
struct Launch;

struct Access {
  uintptr_t address = 0;
  unsigned bytes = 0;
  bool write = false, atomic = false, shared = false, is_volatile = false;
  const void* pc = nullptr;  // after the instruction, in the user's code
  Site site;
};

void on_access(const Access&);
void on_misaligned(const void* p, unsigned alignment, Site);
void access_begin_launch(Launch&);
void access_end_launch(Launch&);
void access_begin_block(Block&);
void access_end_block(Block&);
void access_fence();

}  // namespace simt
