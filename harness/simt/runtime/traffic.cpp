#include "traffic.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace simt {

constexpr unsigned kSampledBlocks = 8;
constexpr uintptr_t kSector = 32;

struct Lane {
  uintptr_t address;
  unsigned bytes;
};

struct Place {  // one load or store instruction of one kernel
  bool shared = false, write = false;
  unsigned long long bytes = 0;         // all blocks
  unsigned long long warps = 0;         // from here on sampled blocks
  unsigned long long sectors = 0, least = 0, conflicts = 0, lanes = 0;
};

using Instruction = std::pair<std::string, const void*>;
static std::map<Instruction, Place> places;
// The k-th time a warp comes by an instruction its lanes form one access.
static std::map<std::tuple<unsigned, unsigned, const void*>, std::vector<Lane>> pending;
static std::map<std::pair<unsigned, const void*>, unsigned> visits;
static unsigned blocks_seen = 0;

void begin_traffic() {
  blocks_seen = 0;
  pending.clear();
  visits.clear();
}

void count_traffic(Block& b, const Access& x) {
  if (x.atomic && x.site.line) return;
  Place& p = places[{b.launch->kernel.name, x.pc}];
  p.shared = x.shared;
  p.write = x.write;
  p.bytes += x.bytes;
  if (blocks_seen >= kSampledBlocks) return;
  const unsigned tid = tls_self->tid;
  const unsigned visit = visits[{tid, x.pc}]++;
  pending[{tid / 32, visit, x.pc}].push_back({x.address, x.bytes});
}

static unsigned distinct(std::vector<uintptr_t>& v) {
  std::sort(v.begin(), v.end());
  return unsigned(std::unique(v.begin(), v.end()) - v.begin());
}

static void add_global(Place& p, const std::vector<Lane>& lanes) {
  std::vector<uintptr_t> sectors, bytes;
  for (const Lane& l : lanes) {
    for (uintptr_t s = l.address / kSector; s <= (l.address + l.bytes - 1) / kSector; ++s)
      sectors.push_back(s);
    for (unsigned i = 0; i < l.bytes; ++i) bytes.push_back(l.address + i);
  }
  p.sectors += distinct(sectors);
  p.least += (distinct(bytes) + kSector - 1) / kSector;
}

// Accesses of 8 and 16 bytes are served in halves and quarters of a warp.
static void add_shared(Place& p, const std::vector<Lane>& lanes) {
  const unsigned words = std::max(1u, lanes[0].bytes / 4);
  const size_t group = 32 / std::min(words, 4u);
  for (size_t first = 0; first < lanes.size(); first += group) {
    std::vector<uintptr_t> banks[32];
    for (size_t i = first; i < std::min(first + group, lanes.size()); ++i)
      for (unsigned w = 0; w < words; ++w) {
        const uintptr_t word = lanes[i].address / 4 + w;
        banks[word % 32].push_back(word);
      }
    unsigned worst = 1;
    for (auto& bank : banks) worst = std::max(worst, distinct(bank));
    p.conflicts += worst - 1;
  }
}

// The host compiler takes a vector load apart; a GPU does not. Joins `next` to `one` where every lane
// goes on where it was, within 16 bytes.
static bool join_vector(std::vector<Lane>& one, const std::vector<Lane>& next) {
  if (one.size() != next.size()) return false;
  for (size_t i = 0; i < one.size(); ++i) {
    const bool after = next[i].address == one[i].address + one[i].bytes;
    const bool before = next[i].address + next[i].bytes == one[i].address;
    if (!(after || before) || one[i].bytes + next[i].bytes > 16) return false;
  }
  for (size_t i = 0; i < one.size(); ++i) {
    one[i].address = std::min(one[i].address, next[i].address);
    one[i].bytes += next[i].bytes;
  }
  return true;
}

static void add(const std::string& kernel, const void* pc, const std::vector<Lane>& lanes) {
  Place& p = places[{kernel, pc}];
  ++p.warps;
  p.lanes += lanes.size();
  p.shared ? add_shared(p, lanes) : add_global(p, lanes);
}

void end_block_traffic(Block& b) {
  if (blocks_seen >= kSampledBlocks) return;
  ++blocks_seen;
  const std::string kernel = b.launch->kernel.name;
  for (auto here = pending.begin(); here != pending.end();) {
    const auto [warp, visit, pc] = here->first;
    std::vector<Lane>& lanes = here->second;
    const Place& place = places[{kernel, pc}];
    for (++here; here != pending.end(); ++here) {
      const auto& [other_warp, other_visit, other_pc] = here->first;
      const Place& other = places[{kernel, other_pc}];
      if (other_warp != warp || other_visit != visit || other.write != place.write) break;
      if (!join_vector(lanes, here->second)) break;
    }
    add(kernel, pc, lanes);
  }
  pending.clear();
  visits.clear();
}

void end_traffic(Launch&) {}

static std::string as_json(const Instruction& where, const Place& p) {
  Dl_info info;
  if (!dladdr(where.second, &info)) return "";
  const auto offset = static_cast<const char*>(where.second) - static_cast<char*>(info.dli_fbase);
  const std::pair<const char*, unsigned long long> numbers[] = {
      {"shared", p.shared},   {"write", p.write}, {"bytes", p.bytes},
      {"warps", p.warps},     {"sectors", p.sectors}, {"least", p.least},
      {"conflicts", p.conflicts}, {"lanes", p.lanes}, {"offset", offset}};
  std::string out = "{\"kernel\":\"" + where.first + "\",\"module\":\"" + info.dli_fname + "\"";
  for (const auto& [name, value] : numbers)
    out += ",\"" + std::string(name) + "\":" + std::to_string(value);
  return out + "}";
}

extern "C" __attribute__((visibility("default"))) const char* simt_take_traffic() {
  static std::string out;
  out = "[";
  for (const auto& [where, place] : places) {
    const std::string one = as_json(where, place);
    if (!one.empty()) out += (out.size() > 1 ? "," : "") + one;
  }
  places.clear();
  return (out += "]").c_str();
}

}  // namespace simt
