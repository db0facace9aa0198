// Sectors and bank conflicts per warp access, by place in the source.
#pragma once
#include "access.h"
#include "block.h"

namespace simt {

void begin_traffic();
void count_traffic(Block&, const Access&);
void end_block_traffic(Block&);
void end_traffic(Launch&);

}  // namespace simt
