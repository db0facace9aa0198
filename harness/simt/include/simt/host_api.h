// The CUDA runtime API for host code: one device, whose memory is the host's, done when called.
#pragma once
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "errors.h"
#include "handles.h"
#include "launch.h"

inline cudaError_t cudaGetLastError() { return simt::take_error(); }
inline cudaError_t cudaPeekAtLastError() { return simt::peek_error(); }
inline const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    default: return "cudaErrorUnknown";
  }
}
inline const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    default: return "unknown error";
  }
}

#define SIMT_DONE(name, ...) \
  inline cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
SIMT_DONE(cudaDeviceSynchronize)
SIMT_DONE(cudaDeviceReset)
SIMT_DONE(cudaSetDevice, int)
SIMT_DONE(cudaStreamSynchronize, cudaStream_t)
SIMT_DONE(cudaStreamQuery, cudaStream_t)
SIMT_DONE(cudaStreamDestroy, cudaStream_t)
SIMT_DONE(cudaStreamWaitEvent, cudaStream_t, cudaEvent_t, unsigned = 0)
SIMT_DONE(cudaEventRecord, cudaEvent_t, cudaStream_t = nullptr)
SIMT_DONE(cudaEventSynchronize, cudaEvent_t)
SIMT_DONE(cudaEventQuery, cudaEvent_t)
SIMT_DONE(cudaEventDestroy, cudaEvent_t)
SIMT_DONE(cudaDeviceSetCacheConfig, cudaFuncCache)
SIMT_DONE(cudaDeviceSetSharedMemConfig, cudaSharedMemConfig)
SIMT_DONE(cudaMemPrefetchAsync, const void*, size_t, int, cudaStream_t = nullptr)
SIMT_DONE(cudaHostRegister, void*, size_t, unsigned)
SIMT_DONE(cudaHostUnregister, void*)
#undef SIMT_DONE
template <class F>
inline cudaError_t cudaFuncSetCacheConfig(F, cudaFuncCache) {
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }
inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return *s = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return *s = nullptr, cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  return *s = nullptr, cudaSuccess;
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* s) {
  return *s = cudaStreamCaptureStatusNone, cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* e, unsigned = 0) {
  return *e = nullptr, cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  return *e = nullptr, cudaSuccess;
}
inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  return *ms = 0, cudaSuccess;
}
inline cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
inline cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  return *left = *all = 8ull << 30, cudaSuccess;
}

namespace simt {
void* device_alloc(size_t bytes);  // aligned to 256, filled with the pattern of unwritten memory
void device_free(void*);
}  // namespace simt
template <class T>
inline cudaError_t cudaMalloc(T** p, size_t n) {
  *p = static_cast<T*>(simt::device_alloc(n));
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
template <class T>
inline cudaError_t cudaMallocAsync(T** p, size_t n, cudaStream_t) { return cudaMalloc(p, n); }
template <class T>
inline cudaError_t cudaMallocManaged(T** p, size_t n, unsigned = 1) { return cudaMalloc(p, n); }
template <class T>
inline cudaError_t cudaMallocHost(T** p, size_t n, unsigned = 0) { return cudaMalloc(p, n); }
template <class T>
inline cudaError_t cudaHostAlloc(T** p, size_t n, unsigned) { return cudaMalloc(p, n); }
inline cudaError_t cudaFree(void* p) { return simt::device_free(p), cudaSuccess; }
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }
inline cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
  return memmove(to, from, n), cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind,
                                   cudaStream_t = nullptr) {
  return memmove(to, from, n), cudaSuccess;
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                                     size_t from_pitch, size_t width, size_t height,
                                     cudaMemcpyKind, cudaStream_t = nullptr) {
  for (size_t i = 0; i < height; ++i)
    memmove(static_cast<char*>(to) + i * to_pitch,
            static_cast<const char*>(from) + i * from_pitch, width);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* p, int v, size_t n) { return memset(p, v, n), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t = nullptr) {
  return memset(p, v, n), cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t n, size_t offset = 0,
                                      cudaMemcpyKind = cudaMemcpyHostToDevice) {
  char* to = const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset;
  return memmove(to, from, n), cudaSuccess;
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t n, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, n, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, T& symbol, size_t n, size_t offset = 0,
                                        cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  return memmove(to, reinterpret_cast<const char*>(&symbol) + offset, n), cudaSuccess;
}
template <class P, class T>
inline cudaError_t cudaGetSymbolAddress(P** p, T& symbol) {
  return *p = (P*)&symbol, cudaSuccess;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  return *p = cudaDeviceProp{}, cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device);

// The translator gives the kernel's name, as at its launch.
template <class F>
inline cudaError_t simt_set_attribute(const char* kernel, F f, cudaFuncAttribute a, int value) {
  if constexpr (std::is_convertible_v<F, const void*>)
    if (const simt::Handle* known = simt::find_handle(f)) kernel = known->name;
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize)
    return simt::set_dynamic_limit(kernel, value);
  return cudaSuccess;
}
template <class F>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, F) {
  return *a = cudaFuncAttributes{}, cudaSuccess;
}
template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, F, int threads,
                                                                 size_t shared) {
  const int warps = (threads + 31) / 32;
  int by_shared = static_cast<int>(233472 / (shared + 1024));
  *n = 64 / (warps ? warps : 1);
  if (*n > 32) *n = 32;
  if (by_shared < *n) *n = by_shared;
  return cudaSuccess;
}
template <class F>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, F f, int threads,
                                                                          size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, shared);
}
template <class F>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, F, size_t = 0,
                                                      int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = 132 * (2048 / *block);
  return cudaSuccess;
}

template <class... P>
inline cudaError_t simt_launch_kernel(const simt::Kernel& k, void (*f)(P...), dim3 g, dim3 b,
                                      void** args, size_t shared = 0, cudaStream_t s = nullptr) {
  simt::launch_untyped({g, b, shared, s}, k, f, args, std::index_sequence_for<P...>{});
  return simt::peek_error();
}
inline cudaError_t simt_launch_kernel(const simt::Kernel& k, const void* f, dim3 g, dim3 b,
                                      void** args, size_t shared = 0, cudaStream_t s = nullptr) {
  return simt::launch_by_handle({g, b, shared, s}, k, f, args);
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
namespace simt {
inline Kernel with_attributes(Kernel k, const cudaLaunchConfig_t* c) {
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (c->attrs[i].id == cudaLaunchAttributeCooperative) k.cooperative = c->attrs[i].val.cooperative;
  return k;
}
}  // namespace simt
template <class... P, class... A>
inline cudaError_t simt_launch_kernel_ex(const simt::Kernel& k, const cudaLaunchConfig_t* c,
                                         void (*f)(P...), A&&... a) {
  simt::launch({c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream},
               simt::with_attributes(k, c), [f](auto&... x) { f(x...); },
               static_cast<std::decay_t<P>>(std::forward<A>(a))...);
  return simt::peek_error();
}
template <class... P>
inline cudaError_t simt_launch_kernel_exc(const simt::Kernel& k, const cudaLaunchConfig_t* c,
                                          void (*f)(P...), void** args) {
  simt::launch_untyped({c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream},
                       simt::with_attributes(k, c), f, args, std::index_sequence_for<P...>{});
  return simt::peek_error();
}
inline cudaError_t simt_launch_kernel_exc(const simt::Kernel& k, const cudaLaunchConfig_t* c,
                                          const void* f, void** args) {
  return simt::launch_by_handle({c->gridDim, c->blockDim, c->dynamicSmemBytes, c->stream},
                                simt::with_attributes(k, c), f, args);
}
