#include "access_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "block.h"

namespace simt {

static std::mutex mutex;
static std::map<uintptr_t, Memory*> allocations;           // by guard_begin
static std::unordered_map<uintptr_t, Memory*> pages;       // of memory nobody told us of
static std::unordered_map<const Block*, Memory*> arenas;   // two for each block: static, dynamic
static std::vector<std::pair<uintptr_t, uintptr_t>> ignored;
struct Mapped {
  uintptr_t begin, end;
  bool named;  // a file, or shared memory of the harness
};
static std::vector<Mapped> mapped;
static bool tensors_known = false;  // by an allocator that tells of them
static std::vector<Cell> split_cells(4);  // [0..3] unused, so that index 0 is never a split

uint32_t poison_word(uintptr_t address) {
  const uint32_t h = static_cast<uint32_t>((address >> 2) * 0x9E3779B1u);
  const uint32_t low = 1 + (h >> 8) % 126, high = 1 + (h >> 20) % 126;
  return 0xFF80FF80u | high << 16 | low;
}

void fill_poison(void* begin, size_t bytes) {
  char* p = static_cast<char*>(begin);
  for (size_t i = 0; i < bytes; i += 4) {
    const uint32_t word = poison_word(reinterpret_cast<uintptr_t>(p + i));
    memcpy(p + i, &word, bytes - i < 4 ? bytes - i : 4);
  }
}

extern "C" __attribute__((visibility("default"))) void simt_access_allocated(void* begin,
                                                                            size_t bytes,
                                                                            size_t guard,
                                                                            int poisoned) {
  Memory* r = new Memory;
  r->begin = reinterpret_cast<uintptr_t>(begin);
  r->end = r->begin + bytes;
  r->guard_begin = r->begin - guard;
  r->guard_end = r->end + guard;
  r->space = Space::kGlobal;
  r->poisoned = poisoned;
  tensors_known = true;
  if (poisoned) fill_poison(begin, bytes);
  std::lock_guard<std::mutex> lock(mutex);
  allocations[r->guard_begin] = r;
}

// How many of `bytes` from `begin` are as fresh memory was: no kernel and nobody else wrote them.
// -1: this memory was not filled when it was allocated. *first is the offset of the first.
extern "C" __attribute__((visibility("default"))) long long simt_access_unwritten(
    const void* begin, size_t bytes, long long* first) {
  const uintptr_t from = reinterpret_cast<uintptr_t>(begin);
  Memory* r = find_memory(from);
  if (r->space != Space::kGlobal || !r->poisoned || from + bytes > r->end) return -1;
  long long count = 0;
  for (uintptr_t word = (from + 3) & ~uintptr_t(3); word + 4 <= from + bytes; word += 4) {
    uint32_t value;
    memcpy(&value, reinterpret_cast<const void*>(word), 4);
    if (value != poison_word(word)) continue;
    if (r->cells && r->cells[(word - r->begin) / 4].write) continue;
    if (!count) *first = static_cast<long long>(word - from);
    count += 4;
  }
  return count;
}

static void drop(Memory* r) {
  if (r->cells) munmap(r->cells, r->cells_bytes);
  delete r;
}

extern "C" __attribute__((visibility("default"))) void simt_access_released(void* begin) {
  std::lock_guard<std::mutex> lock(mutex);
  const uintptr_t b = reinterpret_cast<uintptr_t>(begin);
  auto it = allocations.upper_bound(b);
  if (it == allocations.begin()) return;
  --it;
  if (it->second->begin != b) return;
  drop(it->second);
  allocations.erase(it);
}

void ignore_memory(const void* begin, const void* end) {
  ignored.push_back({reinterpret_cast<uintptr_t>(begin), reinterpret_cast<uintptr_t>(end)});
}

static void read_maps() {
  mapped.clear();
  FILE* f = fopen("/proc/self/maps", "r");
  if (!f) return;
  char line[600];
  while (fgets(line, sizeof line, f)) {
    unsigned long lo, hi;
    char mode[8];
    if (sscanf(line, "%lx-%lx %7s", &lo, &hi, mode) == 3 && mode[0] == 'r')
      mapped.push_back({lo, hi, strchr(line, '/') != nullptr});
  }
  fclose(f);
}

static const Mapped* listed(uintptr_t first, uintptr_t last) {
  for (const Mapped& m : mapped)
    if (first >= m.begin && last < m.end) return &m;
  return nullptr;
}

// Memory of the process itself: neither a tensor, nor a variable of the solution, nor an arena.
static bool is_heap(uintptr_t address) {
  Dl_info info;
  if (!tensors_known || dladdr(reinterpret_cast<void*>(address), &info)) return false;
  const Mapped* m = listed(address, address);
  if (!m) {
    read_maps();
    m = listed(address, address);
  }
  return m && !m->named;
}

bool is_mapped(uintptr_t address, size_t bytes) {
  if (listed(address, address + bytes - 1)) return true;
  read_maps();
  if (mapped.empty()) return true;  // no /proc: let the signal tell
  return listed(address, address + bytes - 1) != nullptr;
}

static Memory* page_of(uintptr_t address) {
  Memory*& r = pages[address >> 12];
  if (r) return r;
  r = new Memory;
  r->begin = r->guard_begin = address & ~uintptr_t(4095);
  r->end = r->guard_end = r->begin + 4096;
  for (auto& i : ignored)
    if (address >= i.first && address < i.second) r->space = Space::kIgnored;
  if (r->space == Space::kOther && is_heap(address)) r->space = Space::kHost;
  return r;
}

Memory* find_memory(uintptr_t address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto it = allocations.upper_bound(address);
  if (it != allocations.begin()) {
    Memory* r = (--it)->second;
    if (address < r->guard_end) return r;
  }
  return page_of(address);
}

Cell* cells_of(Memory& r) {
  if (r.cells) return r.cells;
  r.cells_bytes = ((r.end - r.begin) / 4 + 2) * sizeof(Cell);
  void* p = mmap(nullptr, r.cells_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return r.cells = static_cast<Cell*>(p);
}

static Memory* arenas_of(Block& b) {
  Memory*& two = arenas[&b];
  if (two) return two;
  two = new Memory[2];
  const uintptr_t base = reinterpret_cast<uintptr_t>(b.shared);
  two[0].begin = two[0].guard_begin = base;
  two[0].end = two[0].guard_end = base + kSharedArena;
  two[0].space = Space::kStaticShared;
  two[1].begin = two[1].guard_begin = base + kSharedArena;
  two[1].end = two[1].guard_end = base + kSharedArena + kDynamicLimit + 4096;
  two[1].space = Space::kDynamicShared;
  return two;
}

Memory* shared_memory_at(Block& b, uintptr_t address, bool* in_arena) {
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(b.shared);
  *in_arena = offset < kSharedArena + kDynamicLimit + 4096;
  if (!*in_arena) return nullptr;
  return &arenas_of(b)[offset < kSharedArena ? 0 : 1];
}

Cell* split(Cell& c) {
  if (c.write_site == kSplit) return &split_cells[c.write];
  const size_t first = split_cells.size();
  const Cell whole = c;
  split_cells.insert(split_cells.end(), 4, whole);
  c = Cell{};
  c.write = static_cast<uint32_t>(first);
  c.write_site = kSplit;
  return &split_cells[first];
}

Cell* parts(const Cell& c) { return &split_cells[c.write]; }

}  // namespace simt
