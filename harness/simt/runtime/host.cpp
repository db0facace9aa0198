// Host side of the CUDA runtime: errors, memory, attributes, occupancy.
#include "simt/host.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "machine.h"
#include "simt/sync.h"

struct SimtEvent {
  unsigned long long nanoseconds = 0;
};
struct SimtStream {};

namespace simt {

namespace {
std::mutex lock;
cudaError_t last_error = cudaSuccess;
std::map<const void*, size_t> shared_limits;
size_t largest_limit = kStaticLimit;
bool unchecked = false;
Launch unchecked_launch;
}  // namespace

cudaError_t set_last_error(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

// The launch that nobody has asked cudaGetLastError() about yet.
void launch_checked_later(const Launch& l) {
  unchecked = true;
  unchecked_launch = l;
}

size_t dynamic_shared_limit(const void* key) {
  std::lock_guard<std::mutex> hold(lock);
  if (!key) return largest_limit;  // a deduced template: its address is not known
  auto it = shared_limits.find(key);
  return it == shared_limits.end() ? kStaticLimit : it->second;
}

cudaError_t set_function_attribute(const void* key, cudaFuncAttribute a, int value) {
  if (a != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || size_t(value) > kDynamicLimit) return set_last_error(cudaErrorInvalidValue);
  std::lock_guard<std::mutex> hold(lock);
  size_t bytes = std::max<size_t>(value, kStaticLimit);
  shared_limits[key] = bytes;
  largest_limit = std::max(largest_limit, bytes);
  return cudaSuccess;
}

cudaError_t allocate(void** out, size_t bytes) {
  *out = nullptr;
  if (posix_memalign(out, 512, bytes ? bytes : 1)) return set_last_error(cudaErrorMemoryAllocation);
  memset(*out, 0xff, bytes);
  register_allocation({reinterpret_cast<uintptr_t>(*out), bytes, "cudaMalloc", true});
  return cudaSuccess;
}

cudaError_t occupancy(int* blocks, int threads, size_t shared) {
  int warps = (threads + 31) / 32;
  int n = warps > 0 ? std::min(32, 64 / warps) : 0;
  if (shared) n = std::min<int>(n, int(233472 / (shared + 1024)));
  *blocks = n;
  return cudaSuccess;
}

cudaError_t record_event(cudaEvent_t e) {
  if (e) e->nanoseconds = nanoseconds();
  return cudaSuccess;
}
cudaError_t new_event(cudaEvent_t* e) {
  *e = new SimtEvent;
  return cudaSuccess;
}
cudaError_t new_stream(cudaStream_t* s) {
  *s = new SimtStream;
  return cudaSuccess;
}

}  // namespace simt

using namespace simt;

extern "C" {

cudaError_t cudaGetLastError() {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  unchecked = false;
  return e;
}
cudaError_t cudaPeekAtLastError() {
  unchecked = false;
  return last_error;
}
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorCooperativeLaunchTooLarge: return "too many blocks in cooperative launch";
    case cudaErrorNotSupported: return "operation not supported";
    default: return "unknown error";
  }
}
const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    default: return "cudaErrorUnknown";
  }
}
cudaError_t cudaDeviceSynchronize() { return last_error; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaSetDevice(int d) { return d == 0 ? cudaSuccess : set_last_error(cudaErrorInvalidDevice); }
cudaError_t cudaGetDevice(int* d) { return *d = 0, cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* n) { return *n = 1, cudaSuccess; }

cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  const cudaDeviceProp p;
  switch (a) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *v = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *v = 64; break;
    case cudaDevAttrMaxGridDimX: *v = 2147483647; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *v = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = int(p.sharedMemPerBlock); break;
    case cudaDevAttrTotalConstantMemory: *v = 65536; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *v = 65536; break;
    case cudaDevAttrClockRate: *v = 1980000; break;
    case cudaDevAttrMemoryClockRate: *v = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *v = p.memoryBusWidth; break;
    case cudaDevAttrMultiProcessorCount: *v = p.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *v = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = int(p.sharedMemPerMultiprocessor); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = int(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrCooperativeLaunch: *v = 1; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *v = 32; break;
    case cudaDevAttrMaxPersistingL2CacheSize: *v = p.persistingL2CacheMaxSize; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *v = 1024; break;
    default: *v = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return last_error; }
cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t s) { return delete s, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = a && b ? float(double(b->nanoseconds - a->nanoseconds) * 1e-6) : 0.0f;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (p) forget_allocation(reinterpret_cast<uintptr_t>(p));
  free(p);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  if (bytes) memmove(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* p, int v, size_t bytes) {
  if (bytes) memset(p, v, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  *left = *all = 150ull << 30;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* v) { return *v = CUDART_VERSION, cudaSuccess; }

int32_t simt_aoti_torch_get_current_cuda_stream(int32_t, void** stream) { return *stream = nullptr, 0; }
int32_t simt_torch_c10_cuda_check_msg(int32_t error, const char*, const char*, int32_t, bool, char** message) {
  if (error) *message = strdup(cudaGetErrorString(cudaError_t(error)));
  return 0;
}

// Called at the end of every call from Python: 1 when a launch was left unchecked.
SIMT_API int simt_end_call() {
  if (!unchecked) return 0;
  unchecked = false;
  std::string message = std::string("the launch of ") + unchecked_launch.kernel +
                        " is not followed by cudaGetLastError(); a refused launch would go unseen";
  report({"unchecked launch", Severity::warning, message.c_str(), unchecked_launch.kernel,
          unchecked_launch.file, unchecked_launch.line, 0, nullptr, nullptr});
  return 1;
}

}  // extern "C"
