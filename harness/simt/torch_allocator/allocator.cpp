// torch's CPU allocator in the checked mode: memory is filled with the pattern of unwritten memory,
// has a margin on both sides, and is known to the runtime.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstdlib>
#include <cstring>

extern "C" void simt_add_allocation(const void*, size_t, int);
extern "C" void simt_drop_allocation(const void*);

namespace {

constexpr size_t kMargin = 256;

void release(void* p) {
  if (!p) return;
  simt_drop_allocation(p);
  free(static_cast<char*>(p) - kMargin);
}

class Tracked final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    const size_t room = (bytes + 2 * kMargin + 63) / 64 * 64;
    char* whole = static_cast<char*>(aligned_alloc(64, room));
    TORCH_CHECK(whole, "simt: no memory for ", bytes, " bytes");
    for (size_t i = 0; i < room; i += 4) {
      const unsigned pattern = 0xFFFBFFFBu;
      memcpy(whole + i, &pattern, 4);
    }
    char* p = whole + kMargin;
    simt_add_allocation(p, bytes, 1);
    return {p, p, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t n) const override { memcpy(to, from, n); }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void simt_track_torch() {
  static Tracked tracked;
  c10::SetAllocator(c10::DeviceType::CPU, &tracked, 255);
}
