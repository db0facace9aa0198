// CUB: block and warp reductions and scans, and the device-wide ones as kernels of one thread.
// The steps differ from CUB's, so rounding does; where results are valid is the same.
#pragma once
#include "cub_operators.h"
#include "cub_warp.h"
#include "cub_block.h"
#include "cub_device.h"
