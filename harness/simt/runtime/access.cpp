// Every load and store of a checked kernel: bounds, unwritten memory, then races and traffic. Runs on one OS thread, so nothing here is locked.
#include "access.h"

#include <cstdio>

#include "allocations.h"
#include "block.h"
#include "races.h"
#include "traffic.h"

namespace simt {

static bool inside_handler = false;  // an access made by this file itself

static const Region* shared_region(const Block& b, uintptr_t a) {
  const char* p = reinterpret_cast<const char*>(a);
  for (const Region& r : b.regions)
    if (p >= r.begin && p < r.end) return &r;
  return nullptr;
}

static bool in_dynamic(const Block& b, uintptr_t a, size_t bytes) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(b.shared + kSharedArena);
  return a >= begin && a + bytes <= begin + b.launch->config.shared;
}

static bool in_arena(const Block& b, uintptr_t a) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(b.shared);
  return a >= begin && a < begin + kSharedArena + kDynamicLimit + 4096;
}

[[noreturn]] static void refuse(const char* kind, const std::string& message, const Access& x) {
  stop(*tls_worker->current->launch, kind, message, tls_self, Site{}, x.pc);
  inside_handler = false;
  abandon();
}

static std::string what(const Access& x) {
  return std::string(x.write ? "write" : "read") + " of " + std::to_string(x.bytes) + " bytes ";
}

static void check_shared_bounds(const Block& b, const Access& x) {
  const Region* first = shared_region(b, x.address);
  if (first && reinterpret_cast<char*>(x.address + x.bytes) <= first->end) return;
  if (in_dynamic(b, x.address, x.bytes)) return;
  if (first || x.address < reinterpret_cast<uintptr_t>(b.shared + kSharedArena)) {
    const Region* near = first;
    for (const Region& r : b.regions)
      if (!near && reinterpret_cast<uintptr_t>(r.end) <= x.address &&
          x.address - reinterpret_cast<uintptr_t>(r.end) < 128)
        near = &r;
    const std::string of = near ? std::string(" of ") + near->site->name : "";
    refuse("out of bounds", what(x) + "past the end" + of + " in shared memory", x);
  }
  refuse("out of bounds",
         what(x) + "past the " + std::to_string(b.launch->config.shared) +
             " bytes of dynamic shared memory of the launch",
         x);
}

static void check_bounds(const Block& b, const Access& x) {
  if (x.shared) {
    check_shared_bounds(b, x);
    return;
  }
  const std::string where = outside(x.address, x.bytes);
  if (!where.empty()) refuse("out of bounds", what(x) + where, x);
}

static bool unwritten_pattern(const Access& x) {
  uint32_t word;
  if (x.bytes == 2) {
    uint16_t half;
    memcpy(&half, reinterpret_cast<const void*>(x.address), 2);
    return half == 0xFFFB;
  }
  if (x.bytes < 4) return false;
  memcpy(&word, reinterpret_cast<const void*>(x.address), 4);
  return word == 0xFFFBFFFBu;
}

static void check_written(const Access& x, const Word& word) {
  if (x.write || word.written) return;
  if (x.shared) {
    find("uninitialised shared memory", "error", "shared memory is read before it is written", Site{},
         x.pc);
  } else {
    const Allocation* a = allocation_of(x.address);
    if (a && a->fresh && unwritten_pattern(x))
      find("uninitialised memory", "error", "memory is read that nothing has written", Site{}, x.pc);
  }
}

static bool private_to_thread(uintptr_t a) {
  if (tls_self->owns(reinterpret_cast<void*>(a))) return true;
  const uintptr_t tls = reinterpret_cast<uintptr_t>(&threadIdx);
  return a + 4096 > tls && a < tls + 4096;
}

// A volatile access orders blocks as an atomic does; reading one again and again may be a wait.
static void after_volatile(Block& b, const Access& x) {
  order_by_atomic(b, x.address);
  if (!x.write) changed_nothing(true, Site{"a volatile load", "", 0});
}

void on_access(const Access& seen) {
  if (inside_handler || !in_kernel()) return;
  Block& b = *tls_worker->current;
  if (!b.launch->kernel.checked || private_to_thread(seen.address)) return;
  inside_handler = true;
  Access x = seen;
  x.shared = in_arena(b, x.address);
  check_bounds(b, x);
  if (x.shared || allocation_of(x.address)) {
    for (uintptr_t a = x.address & ~uintptr_t(3); a < x.address + x.bytes; a += 4) {
      Word& word = shadow(x).at(a);
      if (a <= x.address) check_written(x, word);
      check_races(b, x, a, word);
    }
    count_traffic(b, x);
  }
  inside_handler = false;
  if (x.is_volatile) after_volatile(b, x);
}

void on_misaligned(const void* p, unsigned alignment, Site site) {
  if (inside_handler || !in_kernel()) return;
  const auto off = reinterpret_cast<uintptr_t>(p) % alignment;
  stop(*tls_worker->current->launch, "misaligned access",
       "the address is " + std::to_string(off) + " bytes off the " + std::to_string(alignment) +
           "-byte alignment of the type",
       tls_self, site, nullptr);
  abandon();
}

void on_atomic(const void* p, unsigned bytes, Site site) {
  Access x;
  x.address = reinterpret_cast<uintptr_t>(p);
  x.bytes = bytes;
  x.write = x.atomic = true;
  x.pc = __builtin_return_address(0);
  x.site = site;
  on_access(x);
  if (in_kernel()) order_by_atomic(*tls_worker->current, x.address);
}

void access_begin_launch(Launch&) {
  forget_races();
  begin_traffic();
}
void access_end_launch(Launch& l) { end_traffic(l); }
void access_begin_block(Block& b) { begin_block_races(b); }
void access_end_block(Block& b) { end_block_traffic(b); }
void access_fence() { note_fence(*tls_worker->current); }

}  // namespace simt
