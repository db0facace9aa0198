// cuda::std of libcu++: the host's own library under the other name.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace cuda {
namespace std {
using namespace ::std;
}
}  // namespace cuda
