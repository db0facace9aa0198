// What the host compiler calls in checked code: before every load and store (-fsanitize=thread) and
// where a pointer is misaligned for its type (-fsanitize=alignment). The sanitizers' own libraries
// are not linked.
#include <cstdint>

#include "access.h"

using simt::Access;
using simt::Site;

#define HOOK extern "C" __attribute__((visibility("default")))

static inline void seen(void* p, unsigned n, bool write, bool is_volatile, const void* pc) {
  Access x;
  x.address = reinterpret_cast<uintptr_t>(p);
  x.bytes = n;
  x.write = write;
  x.atomic = x.is_volatile = is_volatile;
  x.pc = pc;
  simt::on_access(x);
}

#define PC __builtin_return_address(0)
#define ACCESSES(n)                                                                 \
  HOOK void __tsan_read##n(void* p) { seen(p, n, false, false, PC); }               \
  HOOK void __tsan_write##n(void* p) { seen(p, n, true, false, PC); }               \
  HOOK void __tsan_unaligned_read##n(void* p) { seen(p, n, false, false, PC); }     \
  HOOK void __tsan_unaligned_write##n(void* p) { seen(p, n, true, false, PC); }     \
  HOOK void __tsan_volatile_read##n(void* p) { seen(p, n, false, true, PC); }       \
  HOOK void __tsan_volatile_write##n(void* p) { seen(p, n, true, true, PC); }       \
  HOOK void __tsan_unaligned_volatile_read##n(void* p) { seen(p, n, false, true, PC); } \
  HOOK void __tsan_unaligned_volatile_write##n(void* p) { seen(p, n, true, true, PC); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
HOOK void __tsan_read_range(void* p, unsigned long n) { seen(p, unsigned(n), false, false, PC); }
HOOK void __tsan_write_range(void* p, unsigned long n) { seen(p, unsigned(n), true, false, PC); }
HOOK void __tsan_init() {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_vptr_update(void*, void*) {}
HOOK void __tsan_vptr_read(void*) {}
HOOK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HOOK void __tsan_atomic_signal_fence(int) {}

// std::atomic and the like in host code and in headers.
#define ATOMICS(n, T)                                                                              \
  HOOK T __tsan_atomic##n##_load(const volatile T* p, int) { return __atomic_load_n(p, 5); }       \
  HOOK void __tsan_atomic##n##_store(volatile T* p, T v, int) { __atomic_store_n(p, v, 5); }       \
  HOOK T __tsan_atomic##n##_exchange(volatile T* p, T v, int) {                                    \
    return __atomic_exchange_n(p, v, 5);                                                           \
  }                                                                                                \
  HOOK T __tsan_atomic##n##_fetch_add(volatile T* p, T v, int) {                                   \
    return __atomic_fetch_add(p, v, 5);                                                            \
  }                                                                                                \
  HOOK T __tsan_atomic##n##_fetch_sub(volatile T* p, T v, int) {                                   \
    return __atomic_fetch_sub(p, v, 5);                                                            \
  }                                                                                                \
  HOOK T __tsan_atomic##n##_fetch_and(volatile T* p, T v, int) {                                   \
    return __atomic_fetch_and(p, v, 5);                                                            \
  }                                                                                                \
  HOOK T __tsan_atomic##n##_fetch_or(volatile T* p, T v, int) {                                    \
    return __atomic_fetch_or(p, v, 5);                                                             \
  }                                                                                                \
  HOOK T __tsan_atomic##n##_fetch_xor(volatile T* p, T v, int) {                                   \
    return __atomic_fetch_xor(p, v, 5);                                                            \
  }                                                                                                \
  HOOK int __tsan_atomic##n##_compare_exchange_strong(volatile T* p, T* c, T v, int, int) {        \
    return __atomic_compare_exchange_n(p, c, v, false, 5, 5);                                      \
  }                                                                                                \
  HOOK int __tsan_atomic##n##_compare_exchange_weak(volatile T* p, T* c, T v, int, int) {          \
    return __atomic_compare_exchange_n(p, c, v, false, 5, 5);                                      \
  }                                                                                                \
  HOOK T __tsan_atomic##n##_compare_exchange_val(volatile T* p, T c, T v, int, int) {              \
    __atomic_compare_exchange_n(p, &c, v, false, 5, 5);                                            \
    return c;                                                                                      \
  }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

struct TypeMismatch {  // the compiler's description of a pointer use
  const char* file;
  uint32_t line, column;
  const void* type;
  unsigned char log_alignment, kind;
};
HOOK void __ubsan_handle_type_mismatch_v1(TypeMismatch* m, void* p) {
  simt::on_misaligned(p, 1u << m->log_alignment, Site{"", m->file, int(m->line)});
}
HOOK void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* m, void* p) {
  __ubsan_handle_type_mismatch_v1(m, p);
}
