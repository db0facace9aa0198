// Which addresses are device memory: every allocation that the process has told the runtime about.
#pragma once
#include <cstddef>

namespace simt {

// `fresh`: nobody has written it yet; it gets the pattern of unwritten memory. Otherwise the contents
// are somebody's. What was known to overlap it is forgotten.
void add_allocation(const void* begin, size_t bytes, bool fresh);
void drop_allocation(const void* begin);

}  // namespace simt
