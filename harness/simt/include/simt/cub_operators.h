// CUB's function objects and the pair that arg-reductions give.
#pragma once
#include <cuda_runtime.h>

#include <limits>

namespace cub {

struct Sum {
  template <class A, class B>
  auto operator()(const A& a, const B& b) const { return a + b; }
};
struct Max {
  template <class T>
  T operator()(const T& a, const T& b) const { return a < b ? b : a; }
};
struct Min {
  template <class T>
  T operator()(const T& a, const T& b) const { return b < a ? b : a; }
};
struct Equality {
  template <class A, class B>
  bool operator()(const A& a, const B& b) const { return a == b; }
};

template <class K, class V>
struct KeyValuePair {
  typedef K Key;
  typedef V Value;
  K key;
  V value;
  KeyValuePair() = default;
  KeyValuePair(const K& k, const V& v) : key(k), value(v) {}
  bool operator!=(const KeyValuePair& o) const { return key != o.key || value != o.value; }
};
struct ArgMax {  // the lower key of equal values
  template <class K, class V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
    return a.value < b.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};
struct ArgMin {
  template <class K, class V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const {
    return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
  }
};

}  // namespace cub

namespace cuda {
template <class T = void>
struct maximum : cub::Max {};
template <class T = void>
struct minimum : cub::Min {};
}  // namespace cuda
