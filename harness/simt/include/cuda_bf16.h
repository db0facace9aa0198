#pragma once
#include <cuda_runtime.h>

#include "simt/bfloat.h"
