// CUDA's declaration specifiers. `__noinline__` and `__shared__` are rewritten by the translator:
// the C++ library uses the first as an attribute, the second needs storage of its own.
#pragma once
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __managed__ static
#define __forceinline__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __device_builtin__
#define __cudart_builtin__
#define __nv_pure__
#define CUDART_CB
#define CUDARTAPI
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define SIMT_CPU 1
