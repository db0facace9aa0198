#pragma once
#include "simt/torch_cuda.h"
