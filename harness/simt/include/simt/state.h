// What a running thread sees of the runtime. Storage is per OS thread: fibers never change theirs.
#pragma once
#include <cstddef>
#include <cstdint>

#include "site.h"
#include "vectors.h"

#define SIMT_TLS extern __thread __attribute__((tls_model("initial-exec")))

extern "C" {
SIMT_TLS uint3 threadIdx;
SIMT_TLS uint3 blockIdx;
SIMT_TLS dim3 blockDim;
SIMT_TLS dim3 gridDim;
SIMT_TLS char* simt_dynamic_shared;
SIMT_TLS unsigned simt_lane;    // linear thread index % 32
SIMT_TLS unsigned simt_thread;  // linear thread index in the block
SIMT_TLS unsigned simt_idle;    // atomics in a row that changed nothing
SIMT_TLS unsigned long long simt_progress;
}
inline constexpr int warpSize = 32;

namespace simt {

struct Meet {  // lanes of a warp that wait for each other, each with a value
  unsigned mask = 0, arrived = 0;
  unsigned readers = 0;
  unsigned waiting = 0;
  unsigned size = 0;
  Site site;
  void* fiber[32];
  alignas(16) unsigned char value[32][32];
};

// Warps. `meet` returns when every live lane of mask has come; each lane then calls `leave`.
Meet* meet(unsigned mask, const void* value, unsigned size, Site);
void leave(Meet*);
void warp_barrier(unsigned mask, Site);  // a meeting that also orders memory
unsigned live_lanes();
unsigned together(Site);  // lanes of the warp that are at this very place, as far as they come
void read_from_missing_lane(Site);

// Blocks and grids.
enum Vote { kCount, kAnd, kOr };
void barrier(Site);
int barrier_vote(int predicate, Vote, Site);
void named_barrier(unsigned id, unsigned threads, Site);
void grid_barrier(Site);
unsigned block_threads();
void fence();

// Waiting for somebody else's store: lets the others run; ends a wait that can never end.
void spin(Site);
[[noreturn]] void fault(const char* kind, const char* message, Site);
long long ticks();
bool in_kernel();
[[noreturn]] void needs_gpu(const char* construct, Site);

// Shared memory. One SharedSite stands for one __shared__ declaration.
struct SharedSite {
  const char* name;
  const char* file;
  int line;
  int id = -1;
};
void* shared_storage(SharedSite&, size_t bytes, size_t align);
template <class T>
T& shared(SharedSite& site) {
  return *static_cast<T*>(shared_storage(site, sizeof(T), alignof(T)));
}
inline void* dynamic_storage() { return simt_dynamic_shared; }
template <class T>
struct DynamicShared {  // `extern __shared__ T name[]` outside a function
  operator T*() const { return static_cast<T*>(dynamic_storage()); }
};

inline void changed_nothing(bool same, Site site) {
  if (!same) {
    simt_idle = 0;
    ++simt_progress;
  } else if (++simt_idle > 64) {
    spin(site);
  }
}

}  // namespace simt
