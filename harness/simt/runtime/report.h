#pragma once
#include "block.h"

namespace simt {

void count_launch();
void keep_fault(const Fault&);

}  // namespace simt
