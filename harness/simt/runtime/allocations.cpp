// Memory that kernels may touch, by address: tensor storage (told by Python's allocator hook),
// cudaMalloc.
#include <map>
#include <mutex>
#include <string>

#include "simt/hooks.h"

namespace simt {

namespace {
struct Known {
  Allocation allocation;
  std::string label;
};
std::mutex lock;
std::map<uintptr_t, Known>& known() {
  static auto* all = new std::map<uintptr_t, Known>;
  return *all;
}
}  // namespace

void register_allocation(const Allocation& a) {
  std::lock_guard<std::mutex> hold(lock);
  Known& k = known()[a.address];
  k.label = a.label ? a.label : "";
  k.allocation = a;
  k.allocation.label = k.label.c_str();
}

void forget_allocation(uintptr_t address) {
  std::lock_guard<std::mutex> hold(lock);
  known().erase(address);
}

const Allocation* find_allocation(const void* address) {
  std::lock_guard<std::mutex> hold(lock);
  auto a = reinterpret_cast<uintptr_t>(address);
  auto it = known().upper_bound(a);
  if (it == known().begin()) return nullptr;
  --it;
  const Allocation& found = it->second.allocation;
  return a < found.address + found.bytes ? &found : nullptr;
}

}  // namespace simt

extern "C" SIMT_API void simt_register_allocation(uintptr_t address, size_t bytes, const char* label) {
  simt::register_allocation({address, bytes, label, true});
}
extern "C" SIMT_API void simt_forget_allocation(uintptr_t address) {
  simt::forget_allocation(address);
}
