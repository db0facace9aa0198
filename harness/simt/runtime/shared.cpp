// Static shared memory: every __shared__ declaration gets its place in the block's arena on first
// use, filled with a pattern that is a NaN in every floating type.
#include <cstring>

#include "block.h"

namespace simt {

constexpr size_t kGap = 128;  // between declarations, so that running over one is seen

static int next_id() {
  static std::atomic<int> id{0};
  return id++;
}

static Region& add_region(Block& b, SharedSite& site, size_t bytes, size_t align) {
  const size_t unit = align > kGap ? align : kGap;
  const size_t begin = (b.shared_used + unit - 1) / unit * unit;
  b.shared_bytes += bytes;
  if (b.shared_bytes > kStaticLimit || b.shared_bytes + b.launch->config.shared > kDynamicLimit) {
    const std::string why = std::to_string(b.shared_bytes) + " bytes of static and " +
                            std::to_string(b.launch->config.shared) +
                            " of dynamic shared memory (sm_90: 49152 static, 232448 in all)";
    fault("launch refused", why.c_str(), Site{"__shared__", site.file, site.line});
  }
  b.shared_used = begin + bytes + kGap;
  char* p = b.shared + begin;
  constexpr unsigned kPattern = 0xFFFBFFFBu;
  for (size_t i = 0; i < bytes; i += 4) memcpy(p + i, &kPattern, 4);
  b.regions.push_back({p, p + bytes, &site});
  return b.regions.back();
}

void* shared_storage(SharedSite& site, size_t bytes, size_t align) {
  static std::mutex mutex;
  if (site.id < 0) {
    std::lock_guard<std::mutex> lock(mutex);
    if (site.id < 0) site.id = next_id();
  }
  Block& b = *tls_worker->current;
  if (int(b.region_of_site.size()) <= site.id) b.region_of_site.resize(site.id + 1, -1);
  int& region = b.region_of_site[site.id];
  if (region < 0) {
    region = int(b.regions.size());
    return add_region(b, site, bytes, align).begin;
  }
  return b.regions[region].begin;
}

}  // namespace simt
