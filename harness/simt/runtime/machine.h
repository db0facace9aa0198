// The machine's parts: a fiber runs threads of a block, a worker (OS thread) runs blocks of a job.
#pragma once
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "simt/hooks.h"
#include "simt/launch.h"
#include "simt/shared.h"

namespace simt {

constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr size_t kValueBytes = 32;         // the widest value that lanes exchange
constexpr size_t kStackBytes = 256 * 1024; // touched pages only count
constexpr unsigned kMaxFibers = 14000;     // two mappings each, under the kernel's 65530
constexpr size_t kDynamicLimit = 232448, kStaticLimit = 49152;
constexpr size_t kRedZone = 32;
constexpr unsigned kBarriers = 16;

struct Block;
struct Worker;

// Where a thread stands while it waits; kind "" while it runs.
struct Waiting {
  const char* kind = "";
  const char* file = nullptr;
  int line = 0;
  uint32_t mask = 0;
};

struct Fiber {
  void* sp = nullptr;
  char* stack = nullptr;  // lowest usable address
  uint3 index{0, 0, 0};
  unsigned thread = ~0u;  // linear index in its block, ~0u: idle
  unsigned place = 0;     // in its block's list of live fibers
  Block* block = nullptr;
  Fiber* next = nullptr;
  Waiting waiting;
  uint32_t converged = 0;
};

// Lanes of one warp meeting with one mask. Freed when every lane that arrived has read it.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  unsigned readers = 0;
  Waiting at;
  Fiber* lanes[kWarp];
  alignas(16) unsigned char values[kWarp][kValueBytes];
};

struct Warp {
  uint32_t alive = 0;  // lanes that have not returned
  unsigned epoch = 0;
  std::vector<Meeting*> open;
  std::vector<Fiber*> converging;  // at __activemask()
};

struct Barrier {
  unsigned arrived = 0, expected = 0;  // expected 0: every thread that has not returned
  Waiting at;
  std::vector<Fiber*> fibers;
  int all = 1, any = 0, count = 0;           // of the round under way
  int was_all = 0, was_any = 0, was_count = 0;  // of the last one
};

struct Block : BlockView {
  unsigned next_thread = 0, alive = 0, converging = 0, grid_waiting = 0;
  uint64_t grid_round = 0;
  Fiber *head = nullptr, *tail = nullptr;  // runnable, in order
  unsigned runnable = 0, preempted = 0;
  bool spinning = false;
  Barrier barriers[kBarriers];
  std::vector<Warp> warps;
  std::vector<Fiber*> grid_fibers, live;
  std::vector<SharedVariable> variables;
  std::vector<std::pair<uint64_t, void*>> addresses;  // by shared variable id: (block serial, where)
  char* memory = nullptr;  // shared memory; guard page behind
  size_t used = 0, static_bytes = 0;
};

struct Code {
  uintptr_t begin = 0, end = 0;
  bool contains(uintptr_t pc) const { return pc >= begin && pc < end; }
};

// What Python gets to know of a launch that ended early.
struct FaultRecord {
  bool set = false;
  std::string kind, message, kernel, file;
  int line = 0, other_line = 0;
  const void* pc = nullptr;
  bool in_block = false;
  uint3 block{0, 0, 0}, thread{0, 0, 0};
};

struct Job {
  Launch launch;
  Body body;
  const void* arguments;
  Code code;
  uint64_t blocks;
  unsigned threads;         // of a block
  unsigned residency;       // blocks that the real device holds at once
  bool cooperative;
  std::vector<uint64_t> block_order;  // empty: ascending
  std::vector<unsigned> thread_order;
  std::atomic<uint64_t> next{0}, finished{0}, resident{0}, grid_arrived{0}, grid_round{0};
  std::atomic<bool> abort{false}, stalled{false};
  FaultRecord fault;        // guarded by the runtime's lock
};

struct Worker {
  Fiber main;
  Fiber* current = &main;
  Job* job = nullptr;
  std::vector<Fiber*> idle;
  std::vector<Block*> resident, spare;
  unsigned turn = 0;  // spinning blocks and new ones alternate
  std::vector<Meeting*> meetings;
  pthread_t thread;
  unsigned number = 0;
  std::atomic<uint64_t> switches{0}, progress{0};
  std::atomic<bool> running{false};
  uint64_t seen = 0;  // the monitor's
  // set by the fault handler, read on the fiber's own stack
  int signal = 0;
  uintptr_t signal_address = 0, signal_pc = 0;
  char* signal_stack = nullptr;
};

struct Settings {
  unsigned workers = 0;  // 0: one per core
  uint64_t seed = 0;     // 0: in order
  double stall_seconds = 10;
};
extern Settings settings;
extern __thread Worker* worker __attribute__((tls_model("initial-exec")));

// fiber.cpp
Fiber* take_fiber(Worker&);
void reset_fiber(Fiber&);  // forget what it was doing
void switch_to(Fiber*);
void count_progress();
[[noreturn]] void fiber_main();

// scheduler.cpp
void push(Block&, Fiber*);
Fiber* pick(Block&);
void park(const Waiting&);  // the current fiber waits, another one runs
void run_blocks(Worker&, Job&);
void* aligned_memory(Worker&, Block&);

// warps.cpp
void lane_returned(Block&, Warp&, unsigned thread);
bool release_converging(Block&);
// barriers.cpp
void thread_returned(Block&);
std::string describe_waiting(const Block&, int* line, int* other_line, const char** file,
                             const Fiber** who);
// faults.cpp
void record_fault(Job&, FaultRecord);
[[noreturn]] void leave_kernel();
void install_handlers();
void prepare_worker_signals(Worker&);
void watch(Job*);  // nullptr: nothing to watch
Code code_around(const void*);
std::string thread_name(const uint3& block, const uint3& thread);
// findings.cpp
void note_fault(const FaultRecord&);
void note(const char* kind, Severity, const std::string& message, const Waiting&);
// pool.cpp
std::vector<Worker*>& workers();
void run_on_workers(Job&);
unsigned worker_count();
// host.cpp
cudaError_t set_last_error(cudaError_t);
size_t dynamic_shared_limit(const void* key);
void launch_checked_later(const Launch&);

}  // namespace simt
