// What the runtime tells the checker in "checked" mode, and what the checker asks of it.
//
// The compiler (-fsanitize=thread, without its library) inserts a call before every load and store;
// the checker's library supplies those calls. It must also know who is running: the runtime calls
// these hooks. All are no-ops outside a launch. One launch runs at a time and on one OS thread.
#pragma once
#include <cstddef>
#include <cstdint>

#define SIMT_CHECK_API extern "C" __attribute__((visibility("default")))

struct SimtLaunch {
  const char* kernel;       // as written before <<<
  const char* file;         // of the launch, as in #line
  int line;                 // of the launch
  unsigned grid[3], block[3];
  std::size_t dynamic_bytes;
  const char* dynamic_base; // dynamic shared memory of the running block (fixed address, one worker)
};

// Around a launch that was accepted. begin locks until end, also after a fault.
SIMT_CHECK_API void simt_check_launch_begin(const SimtLaunch* launch);
SIMT_CHECK_API void simt_check_launch_end();
SIMT_CHECK_API void simt_check_block_begin(unsigned x, unsigned y, unsigned z);
SIMT_CHECK_API void simt_check_block_end();

// At every switch of the OS thread to a CUDA thread's stack; linear = -1: back in the scheduler.
SIMT_CHECK_API void simt_check_thread(int linear, const void* stack_low, std::size_t stack_bytes);

// A static __shared__ variable of the running block, when it is given its place. Red zones of at
// least 64 bytes on both sides; name and line as written.
SIMT_CHECK_API void simt_check_shared(const void* at, std::size_t bytes, const char* name, int line);

// Once per completed rendezvous: __syncthreads and its forms by all live threads of the block;
// __syncwarp and cooperative-group syncs by the lanes in mask (shuffles and votes order nothing).
SIMT_CHECK_API void simt_check_barrier();
SIMT_CHECK_API void simt_check_warp_sync(unsigned warp, unsigned mask);

// __threadfence and __threadfence_system by the current thread (not __threadfence_block).
SIMT_CHECK_API void simt_check_fence();

// An atomic by the current thread, before it happens; pc = 0 takes the caller's line. Its own loads
// and stores must not be instrumented, or be between pause and resume. write = 0: an atomic load.
SIMT_CHECK_API void simt_check_atomic(const volatile void* at, std::size_t bytes, int write);

// Between these the current thread's loads and stores are the runtime's own.
SIMT_CHECK_API void simt_check_pause();
SIMT_CHECK_API void simt_check_resume();

// Memory that kernels may touch but that is neither a tensor nor shared: the runtime's own state
// (ignored), __constant__ and __device__ variables (name given: bounds and races checked).
SIMT_CHECK_API void simt_check_ignore(const void* at, std::size_t bytes);
SIMT_CHECK_API void simt_check_variable(const void* at, std::size_t bytes, const char* name);

// Memory from cudaMalloc and its kin, and its end.
SIMT_CHECK_API void* simt_check_malloc(std::size_t bytes);
SIMT_CHECK_API void simt_check_free(void* at);

// Set once by the runtime: end the running launch as a fault (kind, message, line in the user's
// source, block, thread); called on a CUDA thread's stack and never returns.
typedef void (*SimtAbort)(const char* kind, const char* message, int line, const unsigned block[3],
                          const unsigned thread[3]);
SIMT_CHECK_API void simt_check_set_abort(SimtAbort abort);

// For findings of the runtime itself that don't end the launch (severity: error, warning, note).
SIMT_CHECK_API void simt_check_finding(const char* kind, const char* severity, const char* message,
                                       int line, int other_line);
