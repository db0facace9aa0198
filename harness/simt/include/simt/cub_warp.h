// cub::WarpReduce and cub::WarpScan over the lanes of a logical warp that meet.
#pragma once
#include "cub_operators.h"

namespace simt {

// The lanes of the calling thread's logical warp, as a mask.
template <int N>
unsigned logical_warp() {
  static_assert(N >= 1 && N <= 32, "a logical warp has 1 to 32 lanes");
  const unsigned all = N == 32 ? ~0u : (1u << (N & 31)) - 1;
  return all << (simt_lane / N * N);
}

}  // namespace simt

namespace cub {

template <class T, int N = 32, int = 0>
class WarpReduce {
 public:
  struct TempStorage {
    alignas(T) unsigned char room[sizeof(T)];
  };
  explicit WarpReduce(TempStorage&) {}

  T Sum(T v, SIMT_SITE) { return whole(v, cub::Sum(), SIMT_HERE("cub::WarpReduce")); }
  T Sum(T v, int valid, SIMT_SITE) { return some(v, cub::Sum(), valid, SIMT_HERE("cub::WarpReduce")); }
  template <class Op>
  T Reduce(T v, Op op, SIMT_SITE) { return whole(v, op, SIMT_HERE("cub::WarpReduce")); }
  template <class Op>
  T Reduce(T v, Op op, int valid, SIMT_SITE) { return some(v, op, valid, SIMT_HERE("cub::WarpReduce")); }

 private:
  // Only the first lane's result is valid; others keep their own value, to be noticed.
  template <class Op>
  T whole(T v, Op op, simt::Site site) {
    const T all = simt::reduce(simt::logical_warp<N>(), v, op, site);
    return simt_lane % N == 0 ? all : v;
  }
  template <class Op>
  T some(T v, Op op, int valid, simt::Site site) {
    simt::Meet* m = simt::meet(simt::logical_warp<N>(), &v, sizeof(T), site);
    T all = v;
    if (simt_lane % N == 0)
      for (int i = 1; i < valid && i < N; ++i) all = op(all, simt::read_lane(m, simt_lane + i, v, site));
    simt::leave(m);
    return all;
  }
};

template <class T, int N = 32, int = 0>
class WarpScan {
 public:
  struct TempStorage {
    alignas(T) unsigned char room[sizeof(T)];
  };
  explicit WarpScan(TempStorage&) {}

  void InclusiveSum(T v, T& out, SIMT_SITE) { out = scan(v, cub::Sum(), SIMT_HERE("cub::WarpScan")); }
  void InclusiveSum(T v, T& out, T& total, SIMT_SITE) {
    out = scan(v, cub::Sum(), SIMT_HERE("cub::WarpScan"));
    total = last(out, SIMT_HERE("cub::WarpScan"));
  }
  void ExclusiveSum(T v, T& out, SIMT_SITE) { before(v, out, T{}, cub::Sum(), SIMT_HERE("cub::WarpScan")); }
  void ExclusiveSum(T v, T& out, T& total, SIMT_SITE) {
    total = last(before(v, out, T{}, cub::Sum(), SIMT_HERE("cub::WarpScan")), SIMT_HERE("cub::WarpScan"));
  }
  template <class Op>
  void InclusiveScan(T v, T& out, Op op, SIMT_SITE) { out = scan(v, op, SIMT_HERE("cub::WarpScan")); }
  template <class Op>
  void ExclusiveScan(T v, T& out, T first, Op op, SIMT_SITE) {
    before(v, out, first, op, SIMT_HERE("cub::WarpScan"));
  }
  T Broadcast(T v, unsigned lane, SIMT_SITE) {
    return simt::shuffle(simt::logical_warp<N>(), v, simt_lane / N * N + lane, SIMT_HERE("cub::WarpScan"));
  }

 private:
  template <class Op>
  T scan(T v, Op op, simt::Site site) { return simt::scan(simt::logical_warp<N>(), v, op, site); }
  T last(T v, simt::Site site) {
    return simt::shuffle(simt::logical_warp<N>(), v, simt_lane / N * N + N - 1, site);
  }
  // Sets out to what comes before this lane, `first` included; returns the inclusive result.
  template <class Op>
  T before(T v, T& out, T first, Op op, simt::Site site) {
    const T through = scan(v, op, site);
    const unsigned place = simt_lane % N;
    const T left = simt::shuffle(simt::logical_warp<N>(), through, place ? simt_lane - 1 : simt_lane, site);
    out = place ? static_cast<T>(op(first, left)) : first;
    return through;
  }
};

}  // namespace cub
