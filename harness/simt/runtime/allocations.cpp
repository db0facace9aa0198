#include "allocations.h"

#include <map>
#include <mutex>

#include "races.h"

namespace simt {

constexpr uintptr_t kNear = 1 << 16;  // an address this close to an allocation was meant for it

static std::map<uintptr_t, Allocation>& table() {
  static auto* t = new std::map<uintptr_t, Allocation>;
  return *t;
}
static std::mutex mutex;

void add_allocation(const void* p, size_t bytes, bool fresh) {
  std::lock_guard<std::mutex> lock(mutex);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p);
  Allocation& a = table()[begin];
  if (fresh && bytes) forget_shadow(begin, begin + bytes);
  if (fresh || a.end < begin + bytes || !a.fresh) a = {begin, begin + bytes, fresh};
}

void drop_allocation(const void* p) {
  std::lock_guard<std::mutex> lock(mutex);
  table().erase(reinterpret_cast<uintptr_t>(p));
}

const Allocation* allocation_of(uintptr_t address) {
  auto next = table().upper_bound(address);
  if (next == table().begin()) return nullptr;
  const Allocation& a = std::prev(next)->second;
  return address < a.end ? &a : nullptr;
}

static std::string size_text(const Allocation& a) {
  return std::to_string(a.end - a.begin) + "-byte allocation";
}

std::string outside(uintptr_t address, size_t bytes) {
  auto& t = table();
  auto next = t.upper_bound(address);
  if (next != t.begin()) {
    const Allocation& a = std::prev(next)->second;
    if (address + bytes <= a.end) return "";
    if (address < a.end + kNear && (next == t.end() || address + bytes <= next->first ||
                                    address - a.end <= next->first - address))
      return std::to_string(address - a.end) + " bytes past the end of a " + size_text(a);
  }
  if (next != t.end() && next->first - address < kNear)
    return std::to_string(next->first - address) + " bytes before a " + size_text(next->second);
  return "";
}

extern "C" __attribute__((visibility("default"))) void simt_add_allocation(const void* p,
                                                                           size_t bytes,
                                                                           int fresh) {
  add_allocation(p, bytes, fresh);
}
extern "C" __attribute__((visibility("default"))) void simt_drop_allocation(const void* p) {
  drop_allocation(p);
}

}  // namespace simt
