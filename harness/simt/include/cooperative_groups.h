// Cooperative groups: blocks, tiles of a warp, coalesced lanes, the grid of a cooperative launch.
#pragma once
#include <cuda_runtime.h>

namespace cooperative_groups {

struct thread_block {
  void sync(SIMT_SITE) const { simt::barrier(SIMT_HERE("thread_block::sync")); }
  static unsigned thread_rank() { return simt_thread; }
  static unsigned size() { return simt::block_threads(); }
  static unsigned num_threads() { return simt::block_threads(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

// Lanes of one warp; `first` and `mask` place the group within it.
class warp_group {
 public:
  explicit warp_group(unsigned mask) : mask_(mask) {}
  unsigned size() const { return __builtin_popcount(mask_); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return __builtin_popcount(mask_ & ((1u << simt_lane) - 1)); }
  void sync(SIMT_SITE) const { __syncwarp(mask_, simt_file, simt_line); }
  template <class T>
  T shfl(T v, int rank, SIMT_SITE) const {
    return simt::shuffle(mask_, v, lane_of(unsigned(rank) % size()), SIMT_HERE("group::shfl"));
  }
  template <class T>
  T shfl_up(T v, unsigned delta, SIMT_SITE) const {
    const unsigned rank = thread_rank();
    return simt::shuffle(mask_, v, lane_of(rank < delta ? rank : rank - delta),
                         SIMT_HERE("group::shfl_up"));
  }
  template <class T>
  T shfl_down(T v, unsigned delta, SIMT_SITE) const {
    const unsigned rank = thread_rank();
    return simt::shuffle(mask_, v, lane_of(rank + delta < size() ? rank + delta : rank),
                         SIMT_HERE("group::shfl_down"));
  }
  template <class T>
  T shfl_xor(T v, unsigned bits, SIMT_SITE) const {
    const unsigned rank = thread_rank() ^ bits;
    return simt::shuffle(mask_, v, lane_of(rank < size() ? rank : thread_rank()),
                         SIMT_HERE("group::shfl_xor"));
  }
  int any(int p, SIMT_SITE) const { return simt::ballot(mask_, p, SIMT_HERE("group::any")) != 0; }
  int all(int p, SIMT_SITE) const { return simt::ballot(mask_, !p, SIMT_HERE("group::all")) == 0; }
  unsigned ballot(int p, SIMT_SITE) const {
    return packed(simt::ballot(mask_, p, SIMT_HERE("group::ballot")));
  }
  template <class T>
  unsigned match_any(T v, SIMT_SITE) const {
    return packed(simt::match_any(mask_, v, SIMT_HERE("group::match_any")));
  }
  unsigned mask() const { return mask_; }

 private:
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    for (unsigned i = 0; i < rank; ++i) left &= left - 1;
    return __builtin_ctz(left);
  }
  unsigned packed(unsigned lanes) const {  // bit i stands for the group's rank i
    unsigned out = 0, rank = 0;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (mask_ >> lane & 1) out |= (lanes >> lane & 1) << rank++;
    return out;
  }
  unsigned mask_;
};
typedef warp_group coalesced_group;
inline coalesced_group coalesced_threads(SIMT_SITE) {
  return coalesced_group(simt::together(SIMT_HERE("coalesced_threads")));
}

template <unsigned N, class Parent = void>
class thread_block_tile : public warp_group {
 public:
  static_assert(N <= 32, "tiles above a warp are not executed on the CPU");
  thread_block_tile() : warp_group((N == 32 ? ~0u : (1u << (N & 31)) - 1) << (simt_lane & ~(N - 1))) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<N, Other>&) : thread_block_tile() {}
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  unsigned thread_rank() const { return simt_lane & (N - 1); }
  unsigned meta_group_rank() const { return simt_thread / N; }
  unsigned meta_group_size() const { return (simt::block_threads() + N - 1) / N; }
};
template <unsigned N, class G>
inline thread_block_tile<N> tiled_partition(const G&) {
  return {};
}

// Any of the above, as a function's parameter: the block where `mask` is 0, else lanes of a warp.
class thread_group {
 public:
  thread_group(thread_block) : lanes_(0) {}
  thread_group(const warp_group& g) : lanes_(g.mask()) {}
  unsigned size() const { return is_block() ? simt::block_threads() : lanes_.size(); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return is_block() ? simt_thread : lanes_.thread_rank(); }
  void sync(SIMT_SITE) const {
    if (is_block()) return simt::barrier(SIMT_HERE("thread_group::sync"));
    lanes_.sync(simt_file, simt_line);
  }

 private:
  bool is_block() const { return lanes_.mask() == 0; }
  warp_group lanes_;
};
template <class G>
inline thread_group tiled_partition(const G&, unsigned n) {
  const unsigned all = n >= 32 ? ~0u : (1u << n) - 1;
  return warp_group(all << (simt_lane / n * n));
}

struct grid_group {
  void sync(SIMT_SITE) const { simt::grid_barrier(SIMT_HERE("grid::sync")); }
  bool is_valid() const { return true; }
  unsigned long long block_rank() const {
    return blockIdx.x + gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z);
  }
  unsigned long long num_blocks() const { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  unsigned long long thread_rank() const {
    return block_rank() * simt::block_threads() + simt_thread;
  }
  unsigned long long size() const { return num_blocks() * simt::block_threads(); }
  unsigned long long num_threads() const { return size(); }
};
inline grid_group this_grid() { return {}; }

template <class G>
inline void sync(const G& group, SIMT_SITE) {
  group.sync(simt_file, simt_line);
}

template <class T>
struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  T operator()(T a, T b) const { return a ^ b; }
};

inline unsigned mask_of(const warp_group& g) { return g.mask(); }
template <class G, class T, class F>
inline T reduce(const G& group, T v, F join, SIMT_SITE) {
  return simt::reduce(mask_of(group), v, join, SIMT_HERE("cooperative_groups::reduce"));
}
template <class G, class T, class F = plus<T>>
inline T inclusive_scan(const G& group, T v, F join = {}, SIMT_SITE) {
  return simt::scan(mask_of(group), v, join, SIMT_HERE("inclusive_scan"));
}
template <class G, class T, class F = plus<T>>
inline T exclusive_scan(const G& group, T v, F join = {}, SIMT_SITE) {
  const T all = simt::scan(mask_of(group), v, join, SIMT_HERE("exclusive_scan"));
  const T left = group.shfl_up(all, 1, simt_file, simt_line);
  return group.thread_rank() == 0 ? T{} : left;
}

// A copy done at once, then a meeting of the group.
template <class G, class T, class S>
inline void memcpy_async(const G&, T* to, const T* from, const S& bytes) {
  if (G::thread_rank() == 0) memcpy(to, from, size_t(bytes));
}
template <class G>
inline void wait(const G& group, SIMT_SITE) {
  group.sync(simt_file, simt_line);
}

}  // namespace cooperative_groups
