// The last error, as cudaGetLastError gives it, and the opt-in limit of dynamic shared memory.
#pragma once
#include "host_types.h"

namespace simt {

cudaError_t take_error();
cudaError_t peek_error();
void set_error(cudaError_t);
cudaError_t set_dynamic_limit(const char* kernel, int bytes);

}  // namespace simt
