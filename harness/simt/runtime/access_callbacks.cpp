// What the compiler calls under -fsanitize=thread,alignment, in place of the sanitizers' libraries.
#include <cstddef>
#include <cstdint>

#include "access_entry.h"
#include "../include/simt/state.h"

using simt::kAligned, simt::kIsAtomic, simt::kIsVolatile, simt::kReads, simt::kWrites;

#define EXPORT extern "C" __attribute__((visibility("default")))
#define PC __builtin_return_address(0)

#define ACCESS(n)                                                                              \
  EXPORT void __tsan_read##n(void* p) { simt::on_access(p, n, kReads | kAligned, PC); }          \
  EXPORT void __tsan_write##n(void* p) { simt::on_access(p, n, kWrites | kAligned, PC); }        \
  EXPORT void __tsan_read_write##n(void* p) {                                                    \
    simt::on_access(p, n, kReads | kWrites | kAligned, PC);                                      \
  }                                                                                              \
  EXPORT void __tsan_unaligned_read##n(void* p) { simt::on_access(p, n, kReads, PC); }           \
  EXPORT void __tsan_unaligned_write##n(void* p) { simt::on_access(p, n, kWrites, PC); }         \
  EXPORT void __tsan_volatile_read##n(void* p) {                                                 \
    simt::on_access(p, n, kReads | kIsVolatile | kAligned, PC);                                  \
  }                                                                                              \
  EXPORT void __tsan_volatile_write##n(void* p) {                                                \
    simt::on_access(p, n, kWrites | kIsVolatile | kAligned, PC);                                 \
  }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

EXPORT void __tsan_read_range(void* p, size_t n) { simt::on_access(p, unsigned(n), kReads, PC); }
EXPORT void __tsan_write_range(void* p, size_t n) { simt::on_access(p, unsigned(n), kWrites, PC); }
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void**, void*) {}
EXPORT void __tsan_vptr_read(void**) {}

#define FETCH(bits, T, op)                                                           \
  EXPORT T __tsan_atomic##bits##_fetch_##op(volatile T* p, T v, int) {                \
    simt::on_access(p, sizeof(T), kReads | kWrites | kIsAtomic | kAligned, PC);       \
    return __atomic_fetch_##op(p, v, __ATOMIC_SEQ_CST);                               \
  }
#define ATOMIC(bits, T)                                                                      \
  FETCH(bits, T, add) FETCH(bits, T, sub) FETCH(bits, T, and) FETCH(bits, T, or)             \
  FETCH(bits, T, xor) FETCH(bits, T, nand)                                                   \
  EXPORT T __tsan_atomic##bits##_load(const volatile T* p, int) {                            \
    simt::on_access(p, sizeof(T), kReads | kIsAtomic | kAligned, PC);                        \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                             \
  }                                                                                          \
  EXPORT void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                         \
    simt::on_access(p, sizeof(T), kWrites | kIsAtomic | kAligned, PC);                       \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                \
  }                                                                                          \
  EXPORT T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                         \
    simt::on_access(p, sizeof(T), kReads | kWrites | kIsAtomic | kAligned, PC);              \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                      \
  }                                                                                          \
  EXPORT int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* c, T v, int,    \
                                                           int) {                            \
    simt::on_access(p, sizeof(T), kReads | kWrites | kIsAtomic | kAligned, PC);              \
    return __atomic_compare_exchange_n(p, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                          \
  EXPORT int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* c, T v, int,      \
                                                         int) {                              \
    simt::on_access(p, sizeof(T), kReads | kWrites | kIsAtomic | kAligned, PC);              \
    return __atomic_compare_exchange_n(p, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }                                                                                          \
  EXPORT T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T c, T v, int, int) {   \
    simt::on_access(p, sizeof(T), kReads | kWrites | kIsAtomic | kAligned, PC);              \
    __atomic_compare_exchange_n(p, &c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
    return c;                                                                                \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

EXPORT void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (simt::in_kernel()) simt::fence();
}
EXPORT void __tsan_atomic_signal_fence(int) {}

struct TypeMismatch {  // the compiler's description of a pointer that is misaligned for its type
  const char* file;
  uint32_t line, column;
  const void* type;
  unsigned char log_alignment, kind;
};
EXPORT void __ubsan_handle_type_mismatch_v1(TypeMismatch* m, void* p) {
  simt::on_misaligned(p, 1u << m->log_alignment, simt::Site{"", m->file, int(m->line)});
}
EXPORT void __ubsan_handle_type_mismatch_v1_abort(TypeMismatch* m, void* p) {
  __ubsan_handle_type_mismatch_v1(m, p);
}
