// Tensor storage with guard space on both sides, known to the checker, filled with its pattern.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

extern "C" {
void simt_add_guarded_allocation(const void* begin, size_t bytes, size_t guard);
void simt_drop_allocation(const void* begin);
}

namespace {

struct Mapping {
  void* base;
  size_t bytes;
};
std::mutex mutex;
std::unordered_map<void*, Mapping>& mappings() {
  static auto* m = new std::unordered_map<void*, Mapping>;  // tensors outlive static destructors
  return *m;
}

constexpr size_t kPage = 4096, kMostGuard = 1 << 20;

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void* map_guarded(size_t bytes) {
  const size_t body = pages(std::max<size_t>(bytes, 1));
  const size_t guard = std::clamp(body, kPage, kMostGuard);
  const size_t all = body + 2 * guard;
  void* base = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* begin = static_cast<char*>(base) + guard;
  if (mprotect(begin, body, PROT_READ | PROT_WRITE)) return nullptr;
  simt_add_guarded_allocation(begin, bytes, guard);
  std::lock_guard<std::mutex> lock(mutex);
  mappings()[begin] = {base, all};
  return begin;
}

void unmap(void* begin) {
  if (!begin) return;
  simt_drop_allocation(begin);
  std::lock_guard<std::mutex> lock(mutex);
  auto it = mappings().find(begin);
  if (it == mappings().end()) return;
  munmap(it->second.base, it->second.bytes);
  mappings().erase(it);
}

struct Guarded final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* p = bytes ? map_guarded(bytes) : nullptr;
    TORCH_CHECK(p || !bytes, "not enough memory for ", bytes, " bytes");
    return {p, p, &unmap, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unmap; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

// From now on CPU tensors come from here.
extern "C" __attribute__((visibility("default"))) void simt_track_torch() {
  static Guarded guarded;
  c10::SetAllocator(c10::DeviceType::CPU, &guarded, 255);
}
