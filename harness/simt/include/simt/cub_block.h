// cub::BlockReduce and cub::BlockScan: every thread leaves its value, all meet, results are read.
#pragma once
#include "cub_operators.h"

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

}  // namespace cub

namespace simt {

// One value of each thread. `used` is written before and read after the meeting where the checked
// mode sees it, so that storage used again without a barrier is a race; the values are not seen,
// as CUB lays them out otherwise.
template <class T, int N>
struct BlockValues {
  alignas(T) unsigned char value[N][sizeof(T)];
  unsigned char used[N];

  void share(const T& v, Site site) {
    if (block_threads() != unsigned(N))
      fault("cub block size", "the block has not as many threads as the template argument says", site);
    used[simt_thread] = 1;
    put(simt_thread, v);
    barrier(site);
    volatile unsigned char seen = used[(simt_thread + 1) % N];
    (void)seen;
  }
  SIMT_UNSEEN T get(unsigned i) const {
    T v;
    memcpy(static_cast<void*>(&v), value[i], sizeof(T));
    return v;
  }

 private:
  SIMT_UNSEEN void put(unsigned i, const T& v) {
    memcpy(value[i], static_cast<const void*>(&v), sizeof(T));
  }
};

}  // namespace simt

namespace cub {

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1,
          int = 0>
class BlockReduce {
  typedef simt::BlockValues<T, X * Y * Z> Values;

 public:
  struct TempStorage : Values {};
  BlockReduce() : storage_(own()) {}
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  T Sum(T v, SIMT_SITE) { return all(v, cub::Sum(), X * Y * Z, SIMT_HERE("cub::BlockReduce")); }
  T Sum(T v, int valid, SIMT_SITE) { return all(v, cub::Sum(), valid, SIMT_HERE("cub::BlockReduce")); }
  template <int K>
  T Sum(T (&v)[K], SIMT_SITE) {
    return all(mine(v, cub::Sum()), cub::Sum(), X * Y * Z, SIMT_HERE("cub::BlockReduce"));
  }
  template <class Op>
  T Reduce(T v, Op op, SIMT_SITE) { return all(v, op, X * Y * Z, SIMT_HERE("cub::BlockReduce")); }
  template <class Op>
  T Reduce(T v, Op op, int valid, SIMT_SITE) { return all(v, op, valid, SIMT_HERE("cub::BlockReduce")); }
  template <int K, class Op>
  T Reduce(T (&v)[K], Op op, SIMT_SITE) {
    return all(mine(v, op), op, X * Y * Z, SIMT_HERE("cub::BlockReduce"));
  }

 private:
  static TempStorage& own() {
    static simt::SharedSite site{"cub::BlockReduce", "", 0};
    return simt::shared<TempStorage>(site);
  }
  template <int K, class Op>
  static T mine(T (&v)[K], Op op) {
    T sum = v[0];
    for (int i = 1; i < K; ++i) sum = op(sum, v[i]);
    return sum;
  }
  // Only thread 0's result is valid; others keep their own value, to be noticed.
  template <class Op>
  T all(T v, Op op, int valid, simt::Site site) {
    storage_.share(v, site);
    if (simt_thread == 0)
      for (int i = 1; i < valid && i < X * Y * Z; ++i) v = op(v, storage_.get(i));
    return v;
  }
  TempStorage& storage_;
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
  typedef simt::BlockValues<T, X * Y * Z> Values;
  static constexpr int kThreads = X * Y * Z;

 public:
  struct TempStorage : Values {};
  BlockScan() : storage_(own()) {}
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

#define SIMT_AT SIMT_HERE("cub::BlockScan")
  void InclusiveSum(T v, T& out, SIMT_SITE) { inclusive(v, out, cub::Sum(), SIMT_AT); }
  void InclusiveSum(T v, T& out, T& total, SIMT_SITE) { total = inclusive(v, out, cub::Sum(), SIMT_AT); }
  void ExclusiveSum(T v, T& out, SIMT_SITE) { exclusive(v, out, T{}, cub::Sum(), SIMT_AT); }
  void ExclusiveSum(T v, T& out, T& total, SIMT_SITE) { total = exclusive(v, out, T{}, cub::Sum(), SIMT_AT); }
  template <class Op>
  void InclusiveScan(T v, T& out, Op op, SIMT_SITE) { inclusive(v, out, op, SIMT_AT); }
  template <class Op>
  void InclusiveScan(T v, T& out, Op op, T& total, SIMT_SITE) { total = inclusive(v, out, op, SIMT_AT); }
  template <class Op>
  void ExclusiveScan(T v, T& out, T first, Op op, SIMT_SITE) { exclusive(v, out, first, op, SIMT_AT); }
  template <class Op>
  void ExclusiveScan(T v, T& out, T first, Op op, T& total, SIMT_SITE) {
    total = exclusive(v, out, first, op, SIMT_AT);
  }
  template <int K>
  void InclusiveSum(T (&v)[K], T (&out)[K], SIMT_SITE) { items(v, out, T{}, cub::Sum(), true, SIMT_AT); }
  template <int K>
  void ExclusiveSum(T (&v)[K], T (&out)[K], SIMT_SITE) { items(v, out, T{}, cub::Sum(), false, SIMT_AT); }
  template <int K>
  void ExclusiveSum(T (&v)[K], T (&out)[K], T& total, SIMT_SITE) {
    total = items(v, out, T{}, cub::Sum(), false, SIMT_AT);
  }
#undef SIMT_AT

 private:
  static TempStorage& own() {
    static simt::SharedSite site{"cub::BlockScan", "", 0};
    return simt::shared<TempStorage>(site);
  }
  template <class Op>
  T upto(unsigned last, Op op) const {  // of threads 0 to last
    T sum = storage_.get(0);
    for (unsigned i = 1; i <= last; ++i) sum = op(sum, storage_.get(i));
    return sum;
  }
  template <class Op>
  T inclusive(T v, T& out, Op op, simt::Site site) {
    storage_.share(v, site);
    out = upto(simt_thread, op);
    return upto(kThreads - 1, op);
  }
  template <class Op>
  T exclusive(T v, T& out, T first, Op op, simt::Site site) {
    storage_.share(v, site);
    out = simt_thread ? static_cast<T>(op(first, upto(simt_thread - 1, op))) : first;
    return upto(kThreads - 1, op);
  }
  template <int K, class Op>
  T items(T (&v)[K], T (&out)[K], T first, Op op, bool with_own, simt::Site site) {
    T sum = v[0], running;
    for (int i = 1; i < K; ++i) sum = op(sum, v[i]);
    const T total = exclusive(sum, running, first, op, site);
    for (int i = 0; i < K; ++i) {
      const T value = v[i], through = op(running, value);
      out[i] = with_own ? through : running;
      running = through;
    }
    return total;
  }
  TempStorage& storage_;
};

}  // namespace cub
