#include "access_traffic.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "access_races.h"
#include "block.h"

namespace simt {

struct Record {
  uint32_t site;
  uint16_t thread;
  uint8_t bytes, flags;
  uintptr_t address;
  uint32_t turn;  // this thread's how many-eth access at this site
};

struct Line {  // one site in one kernel
  uint64_t warp_accesses = 0, lanes = 0, bytes = 0;
  uint64_t sectors = 0, least_sectors = 0;
  uint64_t passes = 0, least_passes = 0;
  uint8_t width = 0, flags = 0;
};

struct KernelTraffic {
  uint64_t launches = 0, blocks = 0, sampled_blocks = 0, threads = 0;
  uint64_t bytes_read = 0, bytes_written = 0;  // asked for by global accesses of all blocks
  uint64_t distinct_read = 0, distinct_written = 0;
  std::map<uint32_t, Line> lines;
};

constexpr size_t kMostRecords = 2u << 20;  // per block
constexpr uint64_t kMostSampled = 12;      // blocks per launch

bool traffic_sampling = false;
static std::map<std::string, KernelTraffic> kernels;
static KernelTraffic* kernel = nullptr;
static std::map<const Block*, std::vector<Record>> records;
static std::vector<Record>* current = nullptr;
static const Block* current_block = nullptr;
static uint64_t sampled = 0, begun = 0, every = 1;

void traffic_begin_launch(Launch& l) {
  kernel = &kernels[l.kernel.name];
  ++kernel->launches;
  kernel->blocks += l.blocks;
  kernel->threads = l.threads;
  sampled = begun = 0;
  every = std::max<uint64_t>(1, l.blocks / kMostSampled);
  records.clear();
}

void traffic_end_launch(Launch&) {
  records.clear();
  traffic_sampling = false;
  current_block = nullptr;
}

void traffic_begin_block(Block& b) {
  const bool keep = begun++ % every == 0 && sampled < kMostSampled;
  if (!keep) return;
  ++sampled;
  traffic_sampling = true;
  records[&b].clear();
}

void traffic_access(uint32_t site, unsigned thread, uintptr_t address, unsigned bytes,
                    uint8_t flags) {
  if (!(flags & kSharedSpace))
    (flags & kStore ? kernel->bytes_written : kernel->bytes_read) += bytes;
  if (!traffic_sampling) return;
  const Block* b = tls_worker->current;
  if (b != current_block) {
    auto it = records.find(b);
    current_block = b;
    current = it == records.end() ? nullptr : &it->second;
  }
  if (!current || current->size() >= kMostRecords || bytes > 255) return;
  current->push_back({site, static_cast<uint16_t>(thread), static_cast<uint8_t>(bytes), flags,
                      address, 0});
}

void traffic_distinct(unsigned bytes, bool write) {
  (write ? kernel->distinct_written : kernel->distinct_read) += bytes;
}

static unsigned distinct(std::vector<uintptr_t>& v) {
  std::sort(v.begin(), v.end());
  return static_cast<unsigned>(std::unique(v.begin(), v.end()) - v.begin());
}

static void add_global(Line& line, const Record* r, size_t n) {
  static std::vector<uintptr_t> sectors, words;
  sectors.clear();
  words.clear();
  for (size_t i = 0; i < n; ++i) {
    for (uintptr_t s = r[i].address / 32; s <= (r[i].address + r[i].bytes - 1) / 32; ++s)
      sectors.push_back(s);
    words.push_back(r[i].address);
  }
  const uint64_t unique_bytes = uint64_t(distinct(words)) * r[0].bytes;
  line.sectors += distinct(sectors);
  line.least_sectors += (unique_bytes + 31) / 32;
}

// Shared memory serves 32 banks of 4 bytes a pass: a quarter of a warp for 16-byte accesses, half of
// it for 8-byte ones. Lanes of one word share a pass.
static void add_shared(Line& line, const Record* r, size_t n) {
  const unsigned phases = r[0].bytes >= 16 ? 4 : r[0].bytes >= 8 ? 2 : 1;
  for (unsigned phase = 0; phase < phases; ++phase) {
    static std::vector<uintptr_t> words;
    words.clear();
    for (size_t i = 0; i < n; ++i) {
      if (r[i].thread % 32 / (32 / phases) != phase) continue;
      for (uintptr_t w = r[i].address / 4; w <= (r[i].address + r[i].bytes - 1) / 4; ++w)
        words.push_back(w);
    }
    if (words.empty()) continue;
    words.resize(distinct(words));
    unsigned bank[32] = {}, most = 0;
    for (uintptr_t w : words) most = std::max(most, ++bank[w % 32]);
    line.passes += most;
    line.least_passes += 1;
  }
}

static void add_group(const Record* r, size_t n) {
  Line& line = kernel->lines[r[0].site];
  line.flags = r[0].flags;
  line.width = r[0].bytes;
  ++line.warp_accesses;
  line.lanes += n;
  for (size_t i = 0; i < n; ++i) line.bytes += r[i].bytes;
  if (r[0].flags & kSharedSpace)
    add_shared(line, r, n);
  else
    add_global(line, r, n);
}

static void number_turns(std::vector<Record>& v) {
  std::stable_sort(v.begin(), v.end(), [](const Record& a, const Record& b) {
    return a.site != b.site ? a.site < b.site : a.thread < b.thread;
  });
  for (size_t i = 1; i < v.size(); ++i)
    if (v[i].site == v[i - 1].site && v[i].thread == v[i - 1].thread)
      v[i].turn = v[i - 1].turn + 1;
}

static bool same_group(const Record& a, const Record& b) {
  return a.site == b.site && a.thread / 32 == b.thread / 32 && a.turn == b.turn;
}

void traffic_end_block(Block& b) {
  auto it = records.find(&b);
  if (it == records.end()) return;
  std::vector<Record>& v = it->second;
  number_turns(v);
  std::sort(v.begin(), v.end(), [](const Record& x, const Record& y) {
    if (x.site != y.site) return x.site < y.site;
    if (x.thread / 32 != y.thread / 32) return x.thread / 32 < y.thread / 32;
    return x.turn != y.turn ? x.turn < y.turn : x.thread < y.thread;
  });
  for (size_t i = 0, k; i < v.size(); i = k) {
    for (k = i + 1; k < v.size() && same_group(v[i], v[k]);) ++k;
    add_group(&v[i], k - i);
  }
  ++kernel->sampled_blocks;
  records.erase(it);
  current_block = nullptr;
  traffic_sampling = !records.empty();
}

static std::string number(const char* name, uint64_t value) {
  return std::string(",\"") + name + "\":" + std::to_string(value);
}

static std::string place(uint32_t site) {
  const Site line = place_of_site(site);
  if (line.line)
    return "\"file\":\"" + std::string(line.file) + "\",\"line\":" + std::to_string(line.line);
  const void* pc = pc_of_site(site);
  Dl_info info;
  if (!dladdr(pc, &info)) return "\"module\":\"\",\"offset\":0";
  const auto offset = static_cast<const char*>(pc) - static_cast<const char*>(info.dli_fbase);
  return "\"module\":\"" + std::string(info.dli_fname) + "\",\"offset\":" + std::to_string(offset);
}

static std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "\"";
}

static std::string as_json(const std::string& name, uint32_t site, const Line& l) {
  return "{\"kernel\":" + quoted(name) + "," + place(site) + number("write", l.flags & kStore) +
         number("shared", (l.flags & kSharedSpace) != 0) +
         number("atomic", (l.flags & kAtomicAccess) != 0) + number("width", l.width) +
         number("warps", l.warp_accesses) + number("lanes", l.lanes) + number("bytes", l.bytes) +
         number("sectors", l.sectors) + number("least", l.least_sectors) +
         number("conflicts", l.passes - l.least_passes) + number("passes", l.passes) + "}";
}

static std::string as_json(const std::string& name, const KernelTraffic& k) {
  return "{\"kernel\":" + quoted(name) + number("launches", k.launches) +
         number("blocks", k.blocks) + number("sampled_blocks", k.sampled_blocks) +
         number("threads", k.threads) + number("bytes_read", k.bytes_read) +
         number("bytes_written", k.bytes_written) +
         number("distinct_bytes_read", k.distinct_read) +
         number("distinct_bytes_written", k.distinct_written) + "}";
}

// Lines of all kernels since the last call, then what the kernels moved in all.
extern "C" __attribute__((visibility("default"))) const char* simt_take_traffic() {
  static std::string out;
  out = "[";
  for (auto& [name, k] : kernels) {
    for (const auto& [site, line] : k.lines)
      out += (out.size() > 1 ? "," : "") + as_json(name, site, line);
    k.lines.clear();
  }
  return (out += "]").c_str();
}

extern "C" __attribute__((visibility("default"))) const char* simt_take_kernels() {
  static std::string out;
  out = "[";
  for (const auto& [name, k] : kernels) out += (out.size() > 1 ? "," : "") + as_json(name, k);
  kernels.clear();
  kernel = nullptr;
  return (out += "]").c_str();
}

}  // namespace simt
