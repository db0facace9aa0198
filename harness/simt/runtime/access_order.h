// Which accesses of a launch are ordered: by program order, barriers, warp syncs, and by fences with
// atomics. An access is stamped with a context: a thread between two synchronising events.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace simt {

struct Block;

struct Context {
  uint32_t block = 0;    // serial within the launch, from 1
  uint32_t epoch = 0;    // block barriers passed
  uint32_t grid = 0;     // grid barriers passed
  uint32_t tick = 0;     // warp syncs this thread took part in
  uint32_t release = 0;  // releases its block had made
  uint16_t thread = 0;
  uint32_t round = 0;    // launch
};

struct ThreadState {
  uint32_t context = 0;      // 0: make a new one at the next access
  uint32_t epoch = 0;        // of that context
  uint32_t tick = 0;
  uint32_t unfenced = 0;     // 1 + epoch of its last global store that no fence has followed
};

struct WarpOrder {
  uint32_t seen[32][32] = {};  // seen[a][b]: ticks of lane b that lane a is ordered after
};

struct BlockOrder;

struct SyncObject {  // a word that blocks hand things over with
  struct Release {
    const BlockOrder* by;
    uint32_t number;    // its releases so far, this one included
    uint32_t acquired;  // how much that block had acquired itself
    uint16_t thread;
  };
  std::vector<Release> log;
};

struct Acquired {
  const SyncObject* from;
  uint32_t upto;  // entries of its log
};

struct BlockOrder {
  uint32_t serial = 0;
  uint32_t releases = 0;
  bool fenced = false;
  unsigned unfenced = 0;  // threads with stores that no fence has followed
  std::vector<ThreadState> threads;
  std::vector<std::unique_ptr<WarpOrder>> warps;
  std::vector<Acquired> acquired;
};

void order_begin_launch();
void order_begin_block(Block&);
BlockOrder& order_of(Block&);
const Context& context_at(uint32_t id);
bool is_current(uint32_t context);  // of the running launch

uint32_t context_now(Block&, unsigned thread);
// Does everything of context `earlier` happen before what this thread does now?
bool ordered(uint32_t earlier, Block&, unsigned thread);
void order_warp_sync(Block&, unsigned warp, uint32_t mask);
void order_fence(Block&, unsigned thread);
void order_global_store(Block&, unsigned thread);
// An atomic or volatile access of this thread to the word at `address`.
void order_atomic(Block&, unsigned thread, uintptr_t address, bool writes);

}  // namespace simt
