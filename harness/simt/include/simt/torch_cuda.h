// c10::cuda and at::cuda for host code: one device, one stream, guards that do nothing.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

namespace c10::cuda {

struct CUDAStream {
  cudaStream_t stream() const { return nullptr; }
  operator cudaStream_t() const { return nullptr; }
  void synchronize() const {}
  bool query() const { return true; }
  c10::DeviceIndex device_index() const { return 0; }
  int id() const { return 0; }
};
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromExternal(cudaStream_t, c10::DeviceIndex) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}

struct CUDAGuard {
  template <class D>
  explicit CUDAGuard(D&&) {}
  template <class D>
  void set_device(D&&) {}
  template <class I>
  void set_index(I) {}
};
struct OptionalCUDAGuard {
  template <class... D>
  explicit OptionalCUDAGuard(D&&...) {}
  template <class D>
  void set_device(D&&) {}
};
struct CUDAStreamGuard {
  template <class S>
  explicit CUDAStreamGuard(S&&) {}
};
inline c10::DeviceIndex current_device() { return 0; }
inline c10::DeviceIndex device_count() { return 1; }
inline void set_device(c10::DeviceIndex) {}
inline void device_synchronize() {}
inline void stream_synchronize(cudaStream_t) {}

namespace CUDACachingAllocator {
inline void recordStream(...) {}
inline void emptyCache() {}
}  // namespace CUDACachingAllocator

}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
  static cudaDeviceProp properties;
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
template <class T>
T ATenCeilDiv(T a, T b) {
  return (a + b - 1) / b;
}
}  // namespace at::cuda
namespace at {
template <class T>
T ceil_div_(T a, T b) {
  return (a + b - 1) / b;
}
}  // namespace at

#define C10_CUDA_CHECK(e)                                                            \
  do {                                                                               \
    const cudaError_t simt_error = (e);                                              \
    TORCH_CHECK(simt_error == cudaSuccess, "CUDA error: ", cudaGetErrorString(simt_error)); \
  } while (0)
#define C10_CUDA_ERROR_HANDLED(e) (e)
#define C10_CUDA_CHECK_WARN(e) (void)(e)
#define AT_CUDA_CHECK(e) C10_CUDA_CHECK(e)
#define TORCH_CUDA_CHECK(e) C10_CUDA_CHECK(e)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define TORCH_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_KERNEL_LAUNCH_CHECK()
#ifndef CUDA_KERNEL_LOOP
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                               \
  int64_t simt_i##i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;            \
  for (index_type i = simt_i##i; simt_i##i < (n); simt_i##i += blockDim.x * gridDim.x, i = simt_i##i)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#endif
#define CUDA_KERNEL_ASSERT(e) SIMT_ASSERT(e)

template <class T>
inline void gpuAtomicAdd(T* p, T v) {
  simt::atomic_update(p, [v](T old) -> T { return old + v; }, simt::Site{"gpuAtomicAdd"});
}
template <class T>
inline void gpuAtomicAddNoReturn(T* p, T v) {
  gpuAtomicAdd(p, v);
}
