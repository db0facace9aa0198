// Barriers, fences, clocks, traps.
#pragma once
#include <cassert>
#include <cstdio>
#include <cstdlib>

#include "state.h"

inline void simt_syncthreads(SIMT_SITE) { simt::barrier(SIMT_HERE("__syncthreads")); }
inline int simt_syncthreads_count(int p, SIMT_SITE) {
  return simt::barrier_vote(p, simt::kCount, SIMT_HERE("__syncthreads_count"));
}
inline int simt_syncthreads_and(int p, SIMT_SITE) {
  return simt::barrier_vote(p, simt::kAnd, SIMT_HERE("__syncthreads_and"));
}
inline int simt_syncthreads_or(int p, SIMT_SITE) {
  return simt::barrier_vote(p, simt::kOr, SIMT_HERE("__syncthreads_or"));
}
#define __syncthreads() simt_syncthreads()
#define __syncthreads_count(p) simt_syncthreads_count(p)
#define __syncthreads_and(p) simt_syncthreads_and(p)
#define __syncthreads_or(p) simt_syncthreads_or(p)

inline void __threadfence() { simt::fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { simt::fence(); }
inline void __nanosleep(unsigned, SIMT_SITE) { simt::spin(SIMT_HERE("__nanosleep")); }
[[noreturn]] inline void __trap(SIMT_SITE) { simt::fault("trap", "__trap()", SIMT_HERE("__trap")); }
inline void __brkpt() {}
inline void cudaGridDependencySynchronize() {}  // launches end before the next one begins
inline void cudaTriggerProgrammaticLaunchCompletion() {}
inline void __prof_trigger(int) {}
inline long long clock64() { return simt::ticks(); }
inline int simt_clock() { return static_cast<int>(simt::ticks()); }
inline unsigned long long globaltimer() { return static_cast<unsigned long long>(simt::ticks()); }

// A failed assert ends the launch, as on the device, rather than the process.
[[noreturn]] inline void simt_assert(
    const char* what, const char* file, int line) {
  if (simt::in_kernel()) simt::fault("assert", what, simt::Site{"assert", file, line});
  fprintf(stderr, "%s:%d: assertion `%s' failed\n", file, line, what);
  abort();
}
#define SIMT_ASSERT(e) ((e) ? (void)0 : simt_assert(#e, __FILE__, __LINE__))
