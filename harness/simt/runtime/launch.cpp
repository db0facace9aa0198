// One launch: what the device would refuse, then the grid, then its fault.
#include "simt/launch.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>

#include "machine.h"

namespace simt {

static std::atomic<uint64_t> launches{0}, completed{0};
static std::mutex launch_lock;

static std::string size_text(const dim3& d) {
  return std::to_string(d.x) + "x" + std::to_string(d.y) + "x" + std::to_string(d.z);
}

// Empty when an sm_90 device takes the launch.
static std::string refusal(const Config& c, const void* key, cudaError_t* error) {
  const dim3 &g = c.grid, &b = c.block;
  *error = cudaErrorInvalidConfiguration;
  uint64_t threads = uint64_t(b.x) * b.y * b.z;
  if (!g.x || !g.y || !g.z) return "the grid is " + size_text(g) + "; each side must be at least 1";
  if (!threads) return "the block is " + size_text(b) + "; each side must be at least 1";
  if (threads > kMaxThreads)
    return "the block is " + size_text(b) + " = " + std::to_string(threads) +
           " threads; the limit is 1024";
  if (b.z > 64) return "the block is " + size_text(b) + "; the limit of its z side is 64";
  if (g.x > 2147483647u || g.y > 65535 || g.z > 65535)
    return "the grid is " + size_text(g) + "; the limits are 2147483647x65535x65535";
  *error = cudaErrorInvalidValue;
  if (c.shared > dynamic_shared_limit(key))
    return std::to_string(c.shared) + " bytes of dynamic shared memory; " +
           (c.shared > kDynamicLimit ? "sm_90 has 232448 for a block"
                                     : "more than 49152 needs cudaFuncSetAttribute(kernel, "
                                       "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) first");
  return "";
}

static cudaError_t refuse(const Launch& launch, const std::string& why, cudaError_t error) {
  std::string message = std::string("launch of ") + launch.kernel + " refused: " + why;
  report({"launch refused", Severity::error, message.c_str(), launch.kernel, launch.file, launch.line,
          0, nullptr, nullptr});
  return set_last_error(error);
}

// Blocks that a device with 132 multiprocessors holds at the same time.
static unsigned residency(unsigned threads, size_t shared) {
  unsigned warps = (threads + kWarp - 1) / kWarp;
  unsigned each = std::min(32u, 64u / std::max(1u, warps));
  if (shared) each = unsigned(std::min<size_t>(each, 233472 / (shared + 1024)));
  return std::max(1u, each) * 132;
}

static void shuffle_orders(Job& job) {
  if (!settings.seed) return;
  std::mt19937_64 random(settings.seed + job.launch.serial);
  job.thread_order.resize(job.threads);
  std::iota(job.thread_order.begin(), job.thread_order.end(), 0u);
  std::shuffle(job.thread_order.begin(), job.thread_order.end(), random);
  if (job.blocks > (1u << 22)) return;
  job.block_order.resize(job.blocks);
  std::iota(job.block_order.begin(), job.block_order.end(), uint64_t(0));
  std::shuffle(job.block_order.begin(), job.block_order.end(), random);
}

static void describe_job(Job& job, const Config& c, const void* code, Body body, const void* arguments) {
  job.body = body;
  job.arguments = arguments;
  job.code = code_around(code);
  job.threads = c.block.x * c.block.y * c.block.z;
  job.blocks = uint64_t(c.grid.x) * c.grid.y * c.grid.z;
  job.residency = residency(job.threads, c.shared);
  job.cooperative = c.cooperative;
  shuffle_orders(job);
}

static void throw_fault(const FaultRecord& f) {
  note_fault(f);
  std::string where = f.kernel;
  if (f.line) where += " (" + (f.file.empty() ? std::string() : f.file + ":") + std::to_string(f.line) + ")";
  throw std::runtime_error(where + ": " + f.message);
}

cudaError_t run(const Config& c, const Site& site, const void* key, const void* code, Body body,
                const void* arguments) {
  if (in_kernel()) fail("needs a GPU", "a kernel launches a kernel", site.file, site.line);
  std::lock_guard<std::mutex> one_at_a_time(launch_lock);
  Launch launch{site.kernel, site.file, site.line, c.grid, c.block, c.shared, launches.fetch_add(1) + 1};
  launch_checked_later(launch);
  cudaError_t error;
  std::string why = refusal(c, key, &error);
  if (!why.empty()) return refuse(launch, why, error);
  Job job;
  job.launch = launch;
  describe_job(job, c, code, body, arguments);
  if (c.cooperative && job.blocks > job.residency)
    return refuse(launch, std::to_string(job.blocks) + " blocks; a cooperative launch needs all of "
                          "them at the same time, and 132 multiprocessors hold " +
                          std::to_string(job.residency), cudaErrorCooperativeLaunchTooLarge);
  install_handlers();
  if (observer) observer->launch_begin(job.launch);
  run_on_workers(job);
  if (observer) observer->launch_end(job.launch, job.fault.set);
  fflush(stdout);
  if (job.fault.set) throw_fault(job.fault);
  completed.fetch_add(1);
  return cudaSuccess;
}

}  // namespace simt

extern "C" SIMT_API uint64_t simt_completed_launches() { return simt::completed.load(); }
