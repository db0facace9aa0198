// One block, one launch, one OS thread that runs blocks. Blocks never change their OS thread.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "../include/simt/errors.h"
#include "../include/simt/launch.h"
#include "fiber.h"

namespace simt {

constexpr size_t kDynamicLimit = 232448;  // sm_90, opt-in
constexpr size_t kStaticLimit = 49152;
constexpr size_t kSharedArena = 320 * 1024;

struct Queue {  // fibers first in, first out
  Fiber* head = nullptr;
  Fiber* tail = nullptr;
  void push(Fiber* f) {
    f->next = nullptr;
    (tail ? tail->next : head) = f;
    tail = f;
  }
  Fiber* pop() {
    Fiber* f = head;
    if (f && !(head = f->next)) tail = nullptr;
    return f;
  }
};

struct Warp {
  unsigned alive = 0;
  std::vector<Meet*> pending;
  unsigned epoch = 0;  // meetings completed
};

struct Region {  // one __shared__ declaration of one block
  char* begin;
  char* end;
  const SharedSite* site;
};

struct NamedBarrier {
  std::vector<Fiber*> waiting;
};

struct Launch;

struct Block {
  Launch* launch = nullptr;
  uint3 index{};
  unsigned long long serial = 0;
  unsigned threads = 0, started = 0, alive = 0;
  Queue ready, spinning;
  std::vector<Fiber*> at_barrier, at_grid, gathering, live;
  Site barrier_site;
  int votes_and = 1, votes_or = 0, votes_count = 0;
  int result_and = 1, result_or = 0, result_count = 0;
  unsigned epoch = 0;  // barriers completed, those of the grid included
  unsigned grid_epoch = 0;  // barriers of the grid completed
  unsigned grid_generation = 0;
  bool grid_arrived = false;
  Warp warps[32];
  NamedBarrier named[16];
  char* shared = nullptr;   // static, then dynamic arena
  size_t shared_used = 0, shared_bytes = 0;
  std::vector<Region> regions;
  std::vector<int> region_of_site;
  std::vector<unsigned> order;  // a permutation of the threads, or empty
};

struct Fault {
  std::string kind, message, kernel, file;
  int line = 0;
  const void* pc = nullptr;
  uint3 block{}, thread{};
};

struct Worker;

struct Launch {
  Config config;
  Kernel kernel;
  Body body;
  void* arg;
  uint64_t blocks = 0;
  unsigned threads = 0;
  uint64_t max_resident = 1;
  std::atomic<uint64_t> next{0}, resident{0}, done{0};
  std::atomic<unsigned> grid_arrived{0}, grid_generation{0};
  std::atomic<bool> stopped{false};
  std::atomic<size_t> static_bytes{0};
  std::mutex mutex;
  Fault fault;
  std::vector<Worker*> workers;
  std::vector<unsigned> block_order;
};

struct Worker {
  Fiber main;
  std::vector<Fiber*> idle_fibers;
  std::vector<Block*> idle_blocks, resident;
  std::vector<Meet*> idle_meets;
  Block* current = nullptr;
  volatile unsigned long long switches = 0;
  volatile unsigned long long* progress = nullptr;  // this thread's simt_progress
  std::atomic<bool> all_wait{false};
  std::atomic<bool> in_fiber{false};
  unsigned long long seen = 0;
  unsigned long thread_id = 0;
};

extern __thread Worker* tls_worker;
extern __thread Fiber* tls_self;

// scheduler.cpp
void work(Worker&, Launch&);
void suspend();                   // until somebody pushes this fiber on its block's ready queue
[[noreturn]] void abandon();      // leaves a stopped launch
void set_thread(const Fiber*);
uint3 thread_index(unsigned tid, dim3 block);

// barrier.cpp and warp.cpp
void release_barrier(Block&);
void after_exit(Block&, unsigned tid);
void meet_after_exit(Block&, unsigned tid);
bool release_gathered(Block&);
std::string explain_deadlock(Block&);
const char* deadlock_kind(const Block&);  // wrong mask where only warp intrinsics are involved

// faults.cpp
void stop(Launch&, const char* kind, const std::string& message, const Fiber*, Site, const void* pc);
void install_signals();
void prepare_thread_for_signals();
std::string text(uint3);

// findings.cpp
void find(const char* kind, const char* severity, const std::string& message, Site,
          const void* pc = nullptr, Site other = Site{}, const void* other_pc = nullptr);

// settings.cpp
struct Settings {
  unsigned os_threads, seed;
  double spin_s, stuck_s;
};
const Settings& settings();

}  // namespace simt
