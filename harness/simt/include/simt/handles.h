// Kernels as `const void*`, the way the runtime API takes them: a cast to void* is translated to
// `(void*)::simt::handle("kernel", kernel)`, which enters the kernel in a table by its address.
#pragma once
#include <mutex>
#include <unordered_map>

#include "errors.h"
#include "launch.h"

namespace simt {

struct Handle {
  const char* name;
  void (*launch)(const Config&, const Kernel&, const void* f, void** args);
};

inline std::unordered_map<const void*, Handle>& handles() {
  static std::unordered_map<const void*, Handle> table;
  return table;
}
inline std::mutex& handles_mutex() {
  static std::mutex mutex;
  return mutex;
}

template <class... P, size_t... I>
void launch_untyped(const Config& c, const Kernel& k, void (*f)(P...), void** args,
                    std::index_sequence<I...>) {
  launch(c, k, [f](auto&... a) { f(a...); }, *static_cast<std::decay_t<P>*>(args[I])...);
}

template <class... P>
auto handle(const char* name, void (*f)(P...)) {
  const auto run = [](const Config& c, const Kernel& k, const void* f, void** args) {
    launch_untyped(c, k, reinterpret_cast<void (*)(P...)>(const_cast<void*>(f)), args,
                   std::index_sequence_for<P...>{});
  };
  std::lock_guard<std::mutex> lock(handles_mutex());
  handles()[reinterpret_cast<const void*>(f)] = {name, run};
  return f;
}

inline const Handle* find_handle(const void* f) {
  std::lock_guard<std::mutex> lock(handles_mutex());
  const auto found = handles().find(f);
  return found == handles().end() ? nullptr : &found->second;
}

inline cudaError_t launch_by_handle(const Config& c, Kernel k, const void* f, void** args) {
  const Handle* known = find_handle(f);
  if (!known) {
    set_error(cudaErrorInvalidDeviceFunction);
    return cudaErrorInvalidDeviceFunction;
  }
  k.name = known->name;
  known->launch(c, k, f, args);
  return peek_error();
}

}  // namespace simt
