#include "access_races.h"

#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "access_order.h"
#include "access_traffic.h"
#include "block.h"

namespace simt {

static std::set<std::tuple<int, uint32_t, uint32_t>> told;

struct Pending {  // a store over an unordered store: a race unless it changes nothing
  Access access{};
  Memory* memory = nullptr;
  uint32_t other = 0, other_site = 0;
  Block* block = nullptr;
  unsigned thread = 0;
  unsigned char before[64];
  unsigned bytes = 0;
};
static Pending pending;

// A read of what nobody has written yet. Threads run one after another here, so a thread may come too
// early by chance: judged when the block (shared) or the launch (global) ends. If somebody has written
// by then and no barrier lies between, it was a race and is told as one.
struct Unwritten {
  Access access{};
  Memory* memory = nullptr;
  Block* block = nullptr;
  unsigned thread = 0;
  uint3 index{};
  uintptr_t word = 0;
  unsigned from = 0, to = 0;
  uint32_t serial = 0, context = 0;
};
static std::vector<Unwritten> unwritten_reads;
static std::unordered_map<uint32_t, unsigned> unwritten_of_site;
constexpr unsigned kMostUnwritten = 256;  // looked at again for one site

void races_begin_launch() {
  told.clear();
  pending.memory = nullptr;
  unwritten_reads.clear();
  unwritten_of_site.clear();
}

static bool is_shared(const Memory& r) {
  return r.space == Space::kStaticShared || r.space == Space::kDynamicShared;
}

static const char* name_of(const Memory& r, Block& b, uintptr_t address) {
  if (r.space == Space::kDynamicShared) return "dynamic shared memory";
  if (!is_shared(r)) return "global memory";
  for (const Region& s : b.regions)
    if (address >= reinterpret_cast<uintptr_t>(s.begin) &&
        address < reinterpret_cast<uintptr_t>(s.end))
      return s.site->name;
  return "shared memory";
}

static bool first_time(int kind, uint32_t site, uint32_t other) {
  return told.insert({kind, site & ~kAtomic, other & ~kAtomic}).second;
}

static void tell_race(const Access& a, Memory& r, Block& b, unsigned thread, uint32_t other,
                      uint32_t other_site, bool other_wrote) {
  const Context& c = context_at(other);
  const bool same_block = c.block == order_of(b).serial;
  const char* kind = is_shared(r)   ? "race in shared memory"
                     : same_block   ? "race in global memory"
                                    : "race between blocks";
  if (!first_time(1, a.site, other_site)) return;
  const char* does = a.atomic ? "changes atomically" : a.writes ? "writes" : "reads";
  const char* did = other_site & kAtomic ? "changed atomically" : other_wrote ? "wrote" : "read";
  const dim3 size = b.launch->config.block;
  const char* missing = is_shared(r) || same_block ? "no barrier between them"
                                                   : "nothing orders blocks of one launch "
                                                     "(atomics, or a fence and a flag, would)";
  char message[400];
  snprintf(message, sizeof message,
           "%s: block %s thread %s %s what thread %s of %s block %s; %s",
           name_of(r, b, a.address), text(b.index).c_str(),
           text(thread_index(thread, size)).c_str(), does,
           text(thread_index(c.thread, size)).c_str(), same_block ? "the same" : "another", did,
           missing);
  const uint32_t from = other_site & ~kAtomic;
  find(kind, "error", message, place_of_site(a.site), pc_of_site(a.site), place_of_site(from),
       pc_of_site(from));
}

void settle_pending() {
  if (!pending.memory) return;
  Pending p = pending;
  pending.memory = nullptr;
  const void* now = reinterpret_cast<const void*>(p.access.address);
  if (memcmp(now, p.before, p.bytes) == 0) return;
  tell_race(p.access, *p.memory, *p.block, p.thread, p.other, p.other_site, true);
}

static void race(const Access& a, Memory& r, Block& b, unsigned thread, uint32_t other,
                 uint32_t other_site, bool other_wrote) {
  const bool store_over_store = a.writes && !a.reads && other_wrote && !(other_site & kAtomic);
  if (!store_over_store || a.bytes > sizeof pending.before) {
    tell_race(a, r, b, thread, other, other_site, other_wrote);
    return;
  }
  if (pending.memory) return;
  pending.access = a;
  pending.memory = &r;
  pending.other = other;
  pending.other_site = other_site;
  pending.block = &b;
  pending.thread = thread;
  pending.bytes = a.bytes;
  memcpy(pending.before, reinterpret_cast<const void*>(a.address), a.bytes);
}

struct Now {  // who accesses
  Block& block;
  unsigned thread;
  uint32_t context, serial;
  bool shared;
};

// In shared memory an earlier block's accesses, and everywhere an earlier launch's, are history.
static bool alive(uint32_t context, const Now& n) {
  if (!is_current(context)) return false;
  return !n.shared || context_at(context).block == n.serial;
}

static bool clashes(uint32_t context, uint32_t site, const Access& a, const Now& n) {
  if (context == n.context || !alive(context, n)) return false;
  if ((site & kAtomic) && a.atomic) return false;
  return !ordered(context, n.block, n.thread);
}

static void note_read(Cell& c, const Now& n, uint32_t site) {
  const auto mine = [&](uint32_t x) {
    if (!alive(x, n)) return true;
    const Context& k = context_at(x);
    if (k.grid < n.block.grid_epoch) return true;
    return k.block == n.serial && (k.thread == n.thread || k.epoch < n.block.epoch);
  };
  if (mine(c.read)) {
    c.read = n.context;
    c.read_site = site;
  } else {
    if (c.read2 && !mine(c.read2) && context_at(c.read2).block != context_at(c.read).block) return;
    c.read2 = n.context;
    c.read2_site = site;
  }
}

static void count_distinct(const Cell& c, const Access& a, unsigned bytes) {
  if (a.reads && !is_current(c.read) && !is_current(c.write)) traffic_distinct(bytes, false);
  if (a.writes && !is_current(c.write)) traffic_distinct(bytes, true);
}

static void check_cell(Cell& c, const Access& a, Memory& r, const Now& n, unsigned bytes) {
  if (!n.shared) count_distinct(c, a, bytes);
  const uint32_t site = a.site | (a.atomic ? kAtomic : 0);
  if (a.reads && !a.writes && c.read == n.context && c.write != 0 && !alive(c.write, n)) return;
  if (clashes(c.write, c.write_site, a, n))
    race(a, r, n.block, n.thread, c.write, c.write_site, true);
  if (a.writes) {
    if (clashes(c.read, c.read_site, a, n))
      race(a, r, n.block, n.thread, c.read, c.read_site, false);
    else if (clashes(c.read2, c.read2_site, a, n))
      race(a, r, n.block, n.thread, c.read2, c.read2_site, false);
    c.write = n.context;
    c.write_site = site;
  }
  if (a.reads && !(a.atomic && a.writes)) note_read(c, n, site);
}

static bool unwritten(const Cell& c, const Now& n) {
  return n.shared ? !alive(c.write, n) : c.write == 0;
}

// Is some byte of [from, to) of this word one that nobody has ever written?
static bool never_written(Memory& r, const Cell* c, uintptr_t word, unsigned from, unsigned to,
                          const Now& n) {
  if (!n.shared && !r.poisoned) return false;
  const bool whole = c->write_site != kSplit;
  if (whole && !unwritten(*c, n)) return false;
  uint32_t value, fresh = poison_word(word);
  memcpy(&value, reinterpret_cast<const void*>(word), 4);
  if (whole) return n.shared || value == fresh;
  const Cell* four = parts(*c);
  bool any = false;
  for (unsigned i = 0; i < 4; ++i) {
    const bool same = (value >> 8 * i & 255) == (fresh >> 8 * i & 255);
    const bool bare = unwritten(four[i], n);
    if (!n.shared && bare && !same) return false;  // somebody else filled this word
    if (bare && i >= from && i < to) any = true;
  }
  return any;
}

static void tell_unwritten(const Unwritten& u) {
  const bool shared = is_shared(*u.memory);
  const char* kind = shared ? "shared memory read before written" : "memory read before written";
  if (!first_time(2, u.access.site, 0)) return;
  char message[300];
  snprintf(message, sizeof message,
           "%s: block %s thread %s reads %u bytes that nobody has written%s",
           name_of(*u.memory, *u.block, u.access.address), text(u.index).c_str(),
           text(thread_index(u.thread, u.block->launch->config.block)).c_str(), u.access.bytes,
           shared ? " in this block" : " (memory fresh from torch.empty or cudaMalloc)");
  // A note: the value may be thrown away. Where it is used, the pattern of fresh memory, a NaN in
  // every floating type, makes the result wrong.
  find(kind, "note", message, place_of_site(u.access.site), pc_of_site(u.access.site));
}

// Was the word written after the read, by the same thread or beyond a barrier?
static bool written_later(const Cell& c, const Unwritten& u, const Now& n) {
  const Cell& cell = c.write_site == kSplit ? parts(c)[u.from] : c;
  if (!alive(cell.write, n)) return false;
  const Context &read = context_at(u.context), &write = context_at(cell.write);
  if (write.grid > read.grid) return true;
  return read.block == write.block && (read.thread == write.thread || write.epoch > read.epoch);
}

void settle_unwritten(const Block* only) {
  std::vector<Unwritten> rest;
  Block* const running = tls_worker->current;
  for (Unwritten& u : unwritten_reads) {
    const bool shared = is_shared(*u.memory);
    if (only && (!shared || u.block != only)) {
      rest.push_back(u);
      continue;
    }
    if (shared && !only) continue;  // its block never ended
    tls_worker->current = u.block;  // whose kernel the finding names
    const Now n{*u.block, u.thread, 0, u.serial, shared};
    const uintptr_t base = u.memory->begin & ~uintptr_t(3);
    const Cell* c = &cells_of(*u.memory)[(u.word - base) / 4];
    if (never_written(*u.memory, c, u.word, u.from, u.to, n) || written_later(*c, u, n))
      tell_unwritten(u);
  }
  tls_worker->current = running;
  unwritten_reads.swap(rest);
  if (only) unwritten_of_site.clear();
}

static void keep_unwritten(const Access& a, Memory& m, const Now& n, uintptr_t word, unsigned from,
                           unsigned to) {
  if (told.count({2, a.site, 0}) || ++unwritten_of_site[a.site] > kMostUnwritten) return;
  Unwritten u{a,    &m,   &n.block, n.thread, n.block.index,
              word, from, to,       n.serial, n.context};
  if (a.atomic)  // never a race with other atomics, so nothing to wait for
    tell_unwritten(u);
  else
    unwritten_reads.push_back(u);
}

void check_cells(const Access& a, Memory& r, Block& b, unsigned thread) {
  Now n{b, thread, context_now(b, thread), order_of(b).serial, is_shared(r)};
  if (a.writes && !n.shared && !a.atomic) order_global_store(b, thread);
  Cell* cells = cells_of(r);
  const uintptr_t base = r.begin & ~uintptr_t(3);
  for (uintptr_t word = a.address & ~uintptr_t(3); word < a.address + a.bytes; word += 4) {
    Cell* c = &cells[(word - base) / 4];
    const unsigned from = word < a.address ? a.address - word : 0;
    const unsigned to = a.address + a.bytes - word < 4 ? a.address + a.bytes - word : 4;
    if (a.reads && never_written(r, c, word, from, to, n))
      keep_unwritten(a, r, n, word, from, to);
    if (from == 0 && to == 4 && c->write_site != kSplit) {
      check_cell(*c, a, r, n, 4);
      continue;
    }
    Cell* four = split(*c);
    for (unsigned i = from; i < to; ++i) check_cell(four[i], a, r, n, 1);
  }
}

}  // namespace simt
