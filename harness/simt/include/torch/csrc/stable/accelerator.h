// The stable ABI's guards and streams for the one device there is here.
#pragma once
#include <cstdint>

namespace torch::stable::accelerator {

using DeviceIndex = int32_t;
using StreamId = int64_t;

class DeviceGuard {
 public:
  explicit DeviceGuard(DeviceIndex) {}
  void set_index(DeviceIndex) {}
};
class Stream {
 public:
  StreamId id() const { return 0; }
  void* nativeHandle() const { return nullptr; }
};
inline Stream getCurrentStream(DeviceIndex) { return {}; }
inline DeviceIndex getCurrentDeviceIndex() { return 0; }

}  // namespace torch::stable::accelerator
