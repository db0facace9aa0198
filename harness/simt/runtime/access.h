// The checked mode: every load and store of a kernel comes by here.
#pragma once

namespace simt {

struct Block;
struct Launch;

void access_begin_launch(Launch&);
void access_end_launch(Launch&);
void access_begin_block(Block&);
void access_end_block(Block&);
void access_fence();

}  // namespace simt
