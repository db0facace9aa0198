// The checked mode: every load and store of a kernel comes by here.
#pragma once

namespace simt {

struct Block;
struct Launch;

// Called by the launch and the scheduler for kernels compiled in checked mode.
void access_begin_launch(Launch&);
void access_end_launch(Launch&);
void access_begin_block(Block&);
void access_end_block(Block&);
void access_fence();                                         // __threadfence of this thread
void access_warp_sync(Block&, unsigned warp, unsigned mask);  // what orders memory: __syncwarp

}  // namespace simt
