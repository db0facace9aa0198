// Loads and stores with cache hints, asynchronous copies (done at once), address spaces.
#pragma once
#include <cstdint>
#include <cstring>

#include "state.h"

#define SIMT_LOAD(name)     \
  template <class T>        \
  inline T name(const T* p) { \
    return *p;              \
  }
SIMT_LOAD(__ldg)
SIMT_LOAD(__ldcs)
SIMT_LOAD(__ldca)
SIMT_LOAD(__ldcg)
SIMT_LOAD(__ldlu)
SIMT_LOAD(__ldcv)
#undef SIMT_LOAD
#define SIMT_STORE(name)                \
  template <class T>                    \
  inline void name(T* p, const T& v) {  \
    *p = v;                             \
  }
SIMT_STORE(__stcs)
SIMT_STORE(__stcg)
SIMT_STORE(__stwt)
SIMT_STORE(__stwb)
#undef SIMT_STORE

inline size_t __cvta_generic_to_shared(const void* p) { return reinterpret_cast<size_t>(p); }
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
inline bool __isShared(const void* p) {
  return p >= simt_dynamic_shared - 320 * 1024 && p < simt_dynamic_shared + 232448;
}
inline bool __isGlobal(const void* p) { return !__isShared(p); }

// A copy done at once is one of the orders that the hardware may choose.
inline void __pipeline_memcpy_async(void* to, const void* from, size_t n, size_t zeros = 0) {
  memcpy(to, from, n - zeros);
  memset(static_cast<char*>(to) + n - zeros, 0, zeros);
}
inline void __pipeline_commit() {}
inline void __pipeline_wait_prior(size_t) {}
