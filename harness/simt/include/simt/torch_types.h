// What torch declares for device compilers only.
#pragma once
#include <cuda_runtime.h>

namespace at {
template <class T>
struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};
}  // namespace at
namespace torch {
using at::RestrictPtrTraits;
}
