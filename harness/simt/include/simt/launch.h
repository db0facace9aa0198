// k<<<grid, block, bytes, stream>>>(args) becomes simt::launch(config, name, call, args...).
#pragma once
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "host_types.h"
#include "state.h"

#ifndef SIMT_CHECKED
#define SIMT_CHECKED 0
#endif

namespace simt {

struct Config {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  Config(dim3 g, dim3 b, size_t s = 0, cudaStream_t q = nullptr)
      : grid(g), block(b), shared(s), stream(q) {}
};

struct Kernel {
  const char* name;
  const char* file;
  int line;
  bool checked = SIMT_CHECKED;
  bool cooperative = false;
  bool accounted = true;  // counted as a launch of the user's
};

using Body = void (*)(void*);
void run_grid(const Config&, const Kernel&, Body, void* arg);

template <class Call, class... Args>
void launch(const Config& config, const Kernel& kernel, Call call, Args&&... args) {
  auto bound = std::tuple<Call, std::decay_t<Args>...>(call, std::forward<Args>(args)...);
  using Bound = decltype(bound);
  Body body = [](void* p) {
    std::apply([](auto& f, auto&... a) { f(a...); }, *static_cast<Bound*>(p));
  };
  run_grid(config, kernel, body, &bound);
}

template <class T>
struct Given {  // a parameter from which nothing is deduced, so that it may be {...}
  using type = T;
};
template <class... P>
void launch_typed(const Config& config, const Kernel& kernel, void (*f)(P...),
                  typename Given<P>::type... args) {
  launch(config, kernel, f, std::move(args)...);
}

}  // namespace simt
