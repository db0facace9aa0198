#include "races.h"

#include <map>

namespace simt {

using Clock = std::map<uint64_t, uint32_t>;  // block serial -> its releases that are known here

struct BlockOrder {
  Clock known;
  uint32_t release = 1;
  bool fenced = false;  // since its last release
};

static Shadow global_shadow, shared_shadow;
static std::map<uint64_t, BlockOrder> orders;
static std::map<uintptr_t, Clock> at_address;
static uint64_t first_serial = 0;  // of this launch; what lies before it has happened before

Shadow& shadow(const Access& x) { return x.shared ? shared_shadow : global_shadow; }

void forget_races() {
  orders.clear();
  at_address.clear();
  first_serial = 0;
}

void forget_shadow(uintptr_t begin, uintptr_t end) { global_shadow.forget(begin, end); }

void begin_block_races(Block& b) {
  // The arena is used again by the next block: what was written there is gone.
  shared_shadow.clear();
  if (!first_serial) first_serial = b.serial;
}

void note_fence(Block& b) { orders[b.serial].fenced = true; }

static void join(Clock& into, const Clock& from) {
  for (const auto& [block, release] : from)
    if (into[block] < release) into[block] = release;
}

// A fence and then an atomic hand on what the block did before; an atomic takes over what others
// have handed on at that address.
void order_by_atomic(Block& b, uintptr_t address) {
  auto found = at_address.find(address);
  BlockOrder& mine = orders[b.serial];
  if (found != at_address.end()) join(mine.known, found->second);
  if (!mine.fenced) return;
  mine.known[b.serial] = mine.release++;
  join(at_address[address], mine.known);
}

static bool between_blocks_ordered(const Block& b, const Touch& t) {
  auto mine = orders.find(b.serial);
  if (mine == orders.end()) return false;
  auto known = mine->second.known.find(t.block);
  return known != mine->second.known.end() && known->second >= t.release;
}

static bool unordered(const Block& b, const Access& x, const Touch& t) {
  if (t.block < first_serial || (x.atomic && t.atomic)) return false;
  if (t.block != b.serial) return !x.shared && !between_blocks_ordered(b, t);
  const unsigned tid = tls_self->tid;
  if (t.thread == tid || t.barrier != b.epoch) return false;
  return t.thread / 32 != tid / 32 || t.meeting == b.warps[tid / 32].epoch;
}

static void report(const Access& x, const Touch& t, const char* pair, bool same_block) {
  const std::string where = x.shared ? "shared" : "global";
  find("race", "error",
       std::string(pair) + " of the same " + where + " memory by two threads of " +
           (same_block ? "one block" : "different blocks") + " with nothing that orders them",
       Site{}, x.pc, Site{}, t.pc);
}

void check_races(Block& b, const Access& x, uintptr_t word_address, Word& word) {
  uint8_t bytes = 0;
  for (unsigned i = 0; i < 4; ++i)
    if (word_address + i >= x.address && word_address + i < x.address + x.bytes) bytes |= 1 << i;
  auto clash = [&](const Touch& t) { return (t.bytes & bytes) && unordered(b, x, t); };
  if (clash(word.write))
    report(x, word.write, x.write ? "two writes" : "a write and then a read",
           word.write.block == b.serial);
  if (x.write)
    for (const Touch* t : {&word.read, &word.other_read})
      if (clash(*t)) report(x, *t, "a read and then a write", t->block == b.serial);
  const auto mine = orders.find(b.serial);
  const Touch now{b.serial,
                  x.pc,
                  tls_self->tid,
                  b.epoch,
                  b.warps[tls_self->tid / 32].epoch,
                  mine == orders.end() ? 1 : mine->second.release,
                  bytes,
                  x.atomic};
  if (x.write) {
    word.written |= bytes;
    word.write = now;
  }
  if (!x.write) {
    if (word.read.thread != now.thread || word.read.block != now.block) word.other_read = word.read;
    word.read = now;
  }
}

}  // namespace simt
