// What will be slow: sectors per warp access, shared-memory bank conflicts, idle lanes, bytes moved.
// The accesses of a few blocks of every launch are kept and grouped by warp; bytes are of all blocks.
#pragma once
#include <cstdint>

namespace simt {

struct Launch;
struct Block;

void traffic_begin_launch(Launch&);
void traffic_end_launch(Launch&);
void traffic_begin_block(Block&);
void traffic_end_block(Block&);
extern bool traffic_sampling;  // this block's accesses are kept

enum AccessFlags : uint8_t { kStore = 1, kSharedSpace = 2, kAtomicAccess = 4 };
void traffic_access(uint32_t site, unsigned thread, uintptr_t address, unsigned bytes,
                    uint8_t flags);

// Bytes of global memory that this launch touches for the first time.
void traffic_distinct(unsigned bytes, bool write);

}  // namespace simt
