#pragma once
#include "simt/bfloat.h"
#include "simt/fp8.h"
