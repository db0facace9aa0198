#include "access_order.h"

#include <algorithm>

#include "block.h"

namespace simt {

static std::vector<Context> contexts(1);
static uint32_t first_context = 1;  // ids below are of earlier launches
static uint32_t round_ = 0, blocks_begun = 0;
static std::unordered_map<const Block*, std::unique_ptr<BlockOrder>> running;
static std::vector<std::unique_ptr<BlockOrder>> ended;
static std::unordered_map<uintptr_t, SyncObject> objects;
static const Block* last_block = nullptr;
static BlockOrder* last_order = nullptr;

void order_begin_launch() {
  first_context += static_cast<uint32_t>(contexts.size());
  contexts.clear();
  running.clear();
  ended.clear();
  objects.clear();
  last_block = nullptr;
  blocks_begun = 0;
  ++round_;
}

void order_begin_block(Block& b) {
  auto& slot = running[&b];
  if (slot && slot->releases) ended.push_back(std::move(slot));
  slot = std::make_unique<BlockOrder>();
  slot->serial = ++blocks_begun;
  slot->threads.resize(b.threads);
  slot->warps.resize((b.threads + 31) / 32);
  last_block = nullptr;
}

BlockOrder& order_of(Block& b) {
  if (&b != last_block) {
    last_block = &b;
    last_order = running[&b].get();
  }
  return *last_order;
}

bool is_current(uint32_t context) { return context >= first_context; }
const Context& context_at(uint32_t id) { return contexts[id - first_context]; }

uint32_t context_now(Block& b, unsigned thread) {
  BlockOrder& o = order_of(b);
  ThreadState& t = o.threads[thread];
  if (t.context && t.epoch == b.epoch) return t.context;
  Context c;
  c.block = o.serial;
  c.epoch = t.epoch = b.epoch;
  c.grid = b.grid_epoch;
  c.tick = t.tick;
  c.release = o.releases;
  c.thread = static_cast<uint16_t>(thread);
  c.round = round_;
  contexts.push_back(c);
  return t.context = first_context + static_cast<uint32_t>(contexts.size()) - 1;
}

// Is release number `after` + 1 or later of block `from` among what was acquired, directly or by way
// of other blocks? `budget` bounds the search.
static bool handed_over(const std::vector<Acquired>& acquired, size_t upto, uint32_t from,
                        uint32_t after, int thread, int& budget) {
  for (size_t i = upto; i-- > 0;)
    for (size_t k = acquired[i].upto; k-- > 0;) {
      if (--budget < 0) return true;
      const SyncObject::Release& r = acquired[i].from->log[k];
      if (r.by->serial == from && r.number > after && (thread < 0 || r.thread == thread))
        return true;
    }
  for (size_t i = upto; i-- > 0;)
    for (size_t k = acquired[i].upto; k-- > 0;) {
      const SyncObject::Release& r = acquired[i].from->log[k];
      if (--budget < 0) return true;
      if (r.acquired && r.by->serial != from &&
          handed_over(r.by->acquired, r.acquired, from, after, thread, budget))
        return true;
    }
  return false;
}

bool ordered(uint32_t earlier, Block& b, unsigned thread) {
  const Context& c = context_at(earlier);
  BlockOrder& o = order_of(b);
  if (c.grid < b.grid_epoch) return true;
  int budget = 200000;
  if (c.block != o.serial) {
    if (o.acquired.empty()) return false;
    return handed_over(o.acquired, o.acquired.size(), c.block, c.release, -1, budget);
  }
  if (c.thread == thread || c.epoch < b.epoch) return true;
  if (c.thread / 32 == static_cast<int>(thread) / 32 && o.warps[thread / 32] &&
      o.warps[thread / 32]->seen[thread % 32][c.thread % 32] > c.tick)
    return true;
  if (o.acquired.empty()) return false;
  return handed_over(o.acquired, o.acquired.size(), c.block, c.release, c.thread, budget);
}

void order_warp_sync(Block& b, unsigned warp, uint32_t mask) {
  BlockOrder& o = order_of(b);
  if (!o.warps[warp]) o.warps[warp] = std::make_unique<WarpOrder>();
  WarpOrder& w = *o.warps[warp];
  uint32_t joined[32] = {};
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned t = warp * 32 + lane;
    if (!(mask >> lane & 1) || t >= o.threads.size()) continue;
    w.seen[lane][lane] = ++o.threads[t].tick;
    o.threads[t].context = 0;
    for (unsigned k = 0; k < 32; ++k) joined[k] = std::max(joined[k], w.seen[lane][k]);
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) std::copy(joined, joined + 32, w.seen[lane]);
}

void order_fence(Block& b, unsigned thread) {
  BlockOrder& o = order_of(b);
  o.fenced = true;
  if (!o.unfenced) return;
  for (unsigned t = 0; t < o.threads.size(); ++t) {
    uint32_t& u = o.threads[t].unfenced;
    if (!u || (t != thread && u > b.epoch)) continue;
    u = 0;
    --o.unfenced;
  }
}

void order_global_store(Block& b, unsigned thread) {
  BlockOrder& o = order_of(b);
  uint32_t& u = o.threads[thread].unfenced;
  if (!u) ++o.unfenced;
  u = b.epoch + 1;
}

static bool all_fenced(const BlockOrder& o, uint32_t epoch, unsigned thread) {
  if (!o.fenced) return false;
  if (!o.unfenced) return true;
  for (unsigned t = 0; t < o.threads.size(); ++t) {
    const uint32_t u = o.threads[t].unfenced;
    if (u && (t == thread || u <= epoch)) return false;
  }
  return true;
}

void order_atomic(Block& b, unsigned thread, uintptr_t address, bool writes) {
  BlockOrder& o = order_of(b);
  const bool releases = writes && all_fenced(o, b.epoch, thread);
  if (!releases && objects.empty()) return;
  auto found = objects.find(address & ~uintptr_t(3));
  if (found != objects.end()) {
    const SyncObject& s = found->second;
    const uint32_t upto = static_cast<uint32_t>(s.log.size());
    if (!o.acquired.empty() && o.acquired.back().from == &s)
      o.acquired.back().upto = upto;
    else
      o.acquired.push_back({&s, upto});
  }
  if (!releases) return;
  objects[address & ~uintptr_t(3)].log.push_back({&o, ++o.releases,
                                                  static_cast<uint32_t>(o.acquired.size()),
                                                  static_cast<uint16_t>(thread)});
  o.threads[thread].context = 0;  // what it does from now on is not part of this release
  for (ThreadState& t : o.threads) t.context = 0;
}

}  // namespace simt
