// The checked mode's entry: every load and store of a kernel is looked at before it happens.
#include "access.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "access_entry.h"
#include "access_memory.h"
#include "access_order.h"
#include "access_races.h"
#include "access_traffic.h"
#include "block.h"

namespace simt {

struct AccessSite {
  const void* pc = nullptr;
  Site place;  // of an atomic, which is told by line
  uint32_t id = 0;
  unsigned long long round = 0;  // launch in which `memory` was looked up
  Memory* memory = nullptr;
  unsigned long long told_host = 0;  // launch in which it was found to touch host memory
};

static std::vector<AccessSite*> sites{new AccessSite};
static std::unordered_map<const void*, AccessSite*> by_pc;
static AccessSite* nearby[4096];
static unsigned long long launch_round = 0;

const void* pc_of_site(uint32_t site) {
  return site < sites.size() && !sites[site]->place.line ? sites[site]->pc : nullptr;
}
Site place_of_site(uint32_t site) { return site < sites.size() ? sites[site]->place : Site{}; }

static AccessSite& site_at(const void* pc) {
  AccessSite*& slot = nearby[reinterpret_cast<uintptr_t>(pc) % 4093];
  if (slot && slot->pc == pc) return *slot;
  AccessSite*& s = by_pc[pc];
  if (!s) {
    s = new AccessSite;
    s->pc = pc;
    s->id = static_cast<uint32_t>(sites.size());
    sites.push_back(s);
  }
  slot = s;
  return *s;
}

static AccessSite& site_at_line(const Site& place, unsigned part = 0) {
  const auto line = static_cast<unsigned>(place.line) * 3 + part;
  const auto key = reinterpret_cast<uintptr_t>(place.what) * 3000017 + line;
  AccessSite& s = site_at(reinterpret_cast<const void*>(key | uintptr_t(1) << 63));
  s.place = place;
  return s;
}

static void ignore_host_stack() {
  static thread_local bool done = false;
  if (done) return;
  done = true;
  pthread_attr_t attributes;
  void* low;
  size_t bytes;
  if (pthread_getattr_np(pthread_self(), &attributes)) return;
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  ignore_memory(low, static_cast<char*>(low) + bytes);
}

void access_begin_launch(Launch& l) {
  ++launch_round;
  ignore_host_stack();
  order_begin_launch();
  races_begin_launch();
  traffic_begin_launch(l);
}

void access_end_launch(Launch& l) {
  settle_pending();
  settle_unwritten(nullptr);
  traffic_end_launch(l);
}

void access_begin_block(Block& b) {
  order_begin_block(b);
  traffic_begin_block(b);
}

void access_end_block(Block& b) {
  settle_pending();
  settle_unwritten(&b);
  traffic_end_block(b);
}

void access_fence() {
  settle_pending();
  order_fence(*tls_worker->current, tls_self->tid);
}

void access_warp_sync(Block& b, unsigned warp, unsigned mask) {
  settle_pending();
  order_warp_sync(b, warp, mask);
}

[[noreturn]] static void broken(const char* kind, const char* message, uint32_t site) {
  stop(*tls_worker->current->launch, kind, message, tls_self, place_of_site(site),
       pc_of_site(site));
  abandon();
}

// The static __shared__ variable an address belongs to, or else the nearest one before it.
static const Region* variable_near(const Block& b, uintptr_t address) {
  const Region* best = nullptr;
  for (const Region& r : b.regions) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(r.begin);
    if (begin <= address && (!best || r.begin > best->begin)) best = &r;
  }
  return best;
}

static bool inside(uintptr_t address, unsigned bytes, uintptr_t begin, uintptr_t end) {
  return address >= begin && address + bytes <= end;
}

[[noreturn]] static void out_of_bounds(const Access& a, const char* space, const char* name,
                                       uintptr_t begin, uintptr_t end) {
  char kind[64], message[300];
  snprintf(kind, sizeof kind, "%s%s out of bounds", space, a.writes ? "write" : "read");
  const long long at = static_cast<long long>(a.address - begin);
  snprintf(message, sizeof message, "%s %u bytes at byte %lld of %s, which has %llu bytes",
           a.writes ? "writes" : "reads", a.bytes, at, name,
           static_cast<unsigned long long>(end - begin));
  broken(kind, message, a.site);
}

static void check_shared_bounds(const Access& a, Memory& m, Block& b) {
  if (m.space == Space::kDynamicShared) {
    const uintptr_t end = m.begin + b.launch->config.shared;
    if (inside(a.address, a.bytes, m.begin, end)) return;
    out_of_bounds(a, "dynamic shared ", "the dynamic shared memory of this launch", m.begin, end);
  }
  const Region* r = variable_near(b, a.address);
  if (!r) out_of_bounds(a, "shared ", "shared memory", m.begin, m.begin);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(r->begin);
  const uintptr_t end = reinterpret_cast<uintptr_t>(r->end);
  if (inside(a.address, a.bytes, begin, end)) return;
  char name[120];
  snprintf(name, sizeof name, "__shared__ %s", r->site->name);
  out_of_bounds(a, "shared ", name, begin, end);
}

static void check_bounds(const Access& a, Memory& m, Block& b) {
  switch (m.space) {
    case Space::kStaticShared:
    case Space::kDynamicShared: check_shared_bounds(a, m, b); return;
    case Space::kGlobal:
      if (!inside(a.address, a.bytes, m.begin, m.end))
        out_of_bounds(a, "", "an allocation (tensor storage)", m.begin, m.end);
      return;
    default: break;
  }
  if (m.round == launch_round) return;
  m.round = launch_round;
  if (!is_mapped(a.address, a.bytes))
    broken(a.writes ? "write out of bounds" : "read out of bounds",
           "the address belongs to no memory at all", a.site);
}

[[noreturn]] static void misaligned(uintptr_t address, unsigned alignment, Site place,
                                    const void* pc) {
  char message[120];
  snprintf(message, sizeof message, "the address is %u bytes past a multiple of %u",
           static_cast<unsigned>(address % alignment), alignment);
  stop(*tls_worker->current->launch, "misaligned access", message, tls_self, place, pc);
  abandon();
}

// 16 bytes may be a type of 8-byte alignment: there on_misaligned knows better.
static void check_alignment(const Access& a, const AccessSite& s) {
  const bool by_type = a.bytes == 16 && !s.place.line;
  if (!by_type && a.address % a.bytes) misaligned(a.address, a.bytes, s.place, pc_of_site(s.id));
}

static Memory* memory_of(AccessSite& s, uintptr_t address, Block& b) {
  if (s.round == launch_round && address >= s.memory->begin && address < s.memory->end)
    return s.memory;
  bool shared;
  Memory* m = shared_memory_at(b, address, &shared);
  if (!shared) m = find_memory(address);
  s.memory = m;
  s.round = launch_round;
  return m;
}

static void tell_host_memory(AccessSite& s) {
  if (s.told_host == launch_round) return;
  s.told_host = launch_round;
  find("host memory", "warning",
       "touches memory that is neither a tensor's nor cudaMalloc's: a GPU cannot reach it",
       s.place, pc_of_site(s.id));
}

static bool is_runtime(uintptr_t address) {  // threadIdx and its kin of this OS thread
  static thread_local uintptr_t low = 0, bytes = 0;
  if (!low) {
    const uintptr_t p[] = {
        reinterpret_cast<uintptr_t>(&threadIdx),     reinterpret_cast<uintptr_t>(&blockIdx),
        reinterpret_cast<uintptr_t>(&blockDim),      reinterpret_cast<uintptr_t>(&gridDim),
        reinterpret_cast<uintptr_t>(&simt_lane),     reinterpret_cast<uintptr_t>(&simt_thread),
        reinterpret_cast<uintptr_t>(&simt_idle),     reinterpret_cast<uintptr_t>(&simt_progress),
        reinterpret_cast<uintptr_t>(&simt_dynamic_shared)};
    low = *std::min_element(std::begin(p), std::end(p));
    bytes = *std::max_element(std::begin(p), std::end(p)) + 16 - low;
  }
  return address - low < bytes;
}

static bool seen_by_checker(uintptr_t address, const Fiber* f) {
  if (!f || !f->block || !f->block->launch->kernel.checked) return false;
  return address - reinterpret_cast<uintptr_t>(f->stack) >= kStackBytes && !is_runtime(address);
}

static void look(uintptr_t address, unsigned bytes, unsigned flags, AccessSite& s);

void on_misaligned(const void* where, unsigned alignment, Site place) {
  const Fiber* f = tls_self;
  if (f && f->block && f->block->launch->kernel.checked)
    misaligned(reinterpret_cast<uintptr_t>(where), alignment, place, nullptr);
}

void on_access(const volatile void* where, unsigned bytes, unsigned flags, const void* pc) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(where);
  if (bytes && seen_by_checker(address, tls_self)) look(address, bytes, flags, site_at(pc));
}

void on_atomic(const void* where, unsigned bytes, Site place) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(where);
  if (seen_by_checker(address, tls_self))
    look(address, bytes, kReads | kWrites | kIsAtomic | kAligned, site_at_line(place));
}

void on_copy(void* to, const void* from, unsigned bytes, Site place) {
  const unsigned aligned = bytes == 4 || bytes == 8 || bytes == 16 ? kAligned : 0;
  const uintptr_t source = reinterpret_cast<uintptr_t>(from);
  const uintptr_t target = reinterpret_cast<uintptr_t>(to);
  if (bytes && seen_by_checker(source, tls_self))
    look(source, bytes, kReads | aligned, site_at_line(place, 1));
  if (bytes && seen_by_checker(target, tls_self))
    look(target, bytes, kWrites | aligned, site_at_line(place, 2));
}

static void look(uintptr_t address, unsigned bytes, unsigned flags, AccessSite& s) {
  Fiber* f = tls_self;
  Block& b = *f->block;
  settle_pending();
  Memory* m = memory_of(s, address, b);
  if (m->space == Space::kIgnored) return;
  if (m->space == Space::kHost) {
    tell_host_memory(s);
    return;
  }
  const bool writes = flags & kWrites, atomic = flags & (kIsAtomic | kIsVolatile);
  Access a{address, bytes, writes, (flags & kReads) != 0, atomic, s.id};
  check_bounds(a, *m, b);
  if (flags & kAligned) check_alignment(a, s);
  if (atomic) order_atomic(b, f->tid, address, writes);
  check_cells(a, *m, b, f->tid);
  const bool shared = m->space == Space::kStaticShared || m->space == Space::kDynamicShared;
  traffic_access(s.id, f->tid, address, bytes,
                 (writes ? kStore : 0) | (shared ? kSharedSpace : 0) |
                     (flags & kIsAtomic ? kAtomicAccess : 0));
}

}  // namespace simt
