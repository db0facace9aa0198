// Two accesses to one word race unless a barrier, a meeting of their warp, or a fence with an atomic
// lies between them, or both are atomic, or neither writes.
#pragma once
#include "access.h"
#include "block.h"

namespace simt {

Shadow& shadow(const Access&);
void check_races(Block&, const Access&, uintptr_t word_address, Word&);
void order_by_atomic(Block&, uintptr_t address);
void note_fence(Block&);
void begin_block_races(Block&);
void forget_races();
void forget_shadow(uintptr_t begin, uintptr_t end);

}  // namespace simt
