// What an sm_90 device refuses to launch, and the last error that host code can ask for.
#include "limits.h"

#include <algorithm>
#include <map>
#include <string>

#include "block.h"

namespace simt {

static thread_local cudaError_t last_error = cudaSuccess;
static std::map<std::string, int> dynamic_limits;
static int largest_dynamic_limit = kStaticLimit;
static std::string unchecked;  // a launch nobody has asked the last error for
static Site unchecked_site;

cudaError_t take_error() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  unchecked.clear();
  return e;
}

cudaError_t peek_error() {
  unchecked.clear();
  return last_error;
}

void set_error(cudaError_t e) { last_error = e; }

cudaError_t set_dynamic_limit(const char* kernel, int bytes) {
  if (bytes > int(kDynamicLimit) || bytes < 0) return last_error = cudaErrorInvalidValue;
  dynamic_limits[kernel] = bytes;
  largest_dynamic_limit = std::max(largest_dynamic_limit, bytes);
  return cudaSuccess;
}

// Kernels reached through a variable carry its name, so the largest limit set so far is enough.
static size_t dynamic_limit(const char* kernel) {
  auto found = dynamic_limits.find(kernel);
  return found == dynamic_limits.end() ? largest_dynamic_limit : std::max(found->second, 49152);
}

std::string refusal(const Config& c, const char* kernel) {
  const dim3 g = c.grid, b = c.block;
  auto dims = [](dim3 d) { return text(uint3(d)); };
  const uint64_t threads = uint64_t(b.x) * b.y * b.z;
  if (threads == 0) return "a block of " + dims(b) + " has no threads";
  if (threads > 1024 || b.x > 1024 || b.y > 1024 || b.z > 64)
    return "a block of " + dims(b) + " is larger than (1024, 1024, 64) or 1024 threads";
  if (g.x == 0 || g.y == 0 || g.z == 0) return "a grid of " + dims(g) + " has no blocks";
  if (g.x > 2147483647u || g.y > 65535 || g.z > 65535)
    return "a grid of " + dims(g) + " is larger than (2147483647, 65535, 65535)";
  if (c.shared > dynamic_limit(kernel))
    return std::to_string(c.shared) + " bytes of dynamic shared memory, the limit is " +
           std::to_string(dynamic_limit(kernel)) +
           (c.shared <= kDynamicLimit ? " unless cudaFuncSetAttribute raises it" : " on sm_90");
  return "";
}

void note_launch(const Kernel& k) {
  if (!unchecked.empty()) return;
  unchecked = k.name;
  unchecked_site = Site{"", k.file, k.line};
}

void report_unchecked() {
  if (unchecked.empty()) return;
  find("unchecked launch", "note",
       "nothing asks cudaGetLastError() after the launch of " + unchecked, unchecked_site);
  unchecked.clear();
}

uint64_t resident_limit(const Config& c, unsigned threads, size_t static_bytes) {
  const size_t shared = c.shared + static_bytes + 1024;
  const uint64_t warps = (threads + 31) / 32;
  const uint64_t per = std::min<uint64_t>({64 / warps, 32, 233472 / shared});
  return 132 * std::max<uint64_t>(per, 1);
}

}  // namespace simt
