#include "access_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "allocations.h"
#include "block.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace simt {

static std::mutex mutex;
static std::map<uintptr_t, Memory*> allocations;           // by begin
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

static void forget(Memory* m) {
  if (m->cells) munmap(m->cells, m->cells_bytes);
  delete m;
}

static void add(uintptr_t begin, size_t bytes, bool fresh, size_t guard) {
  std::lock_guard<std::mutex> lock(mutex);
  auto it = allocations.upper_bound(begin);
  if (it != allocations.begin() && std::prev(it)->second->end > begin) --it;
  if (it != allocations.end() && !fresh && it->second->begin == begin &&
      it->second->end >= begin + bytes)
    return;  // told again
  while (it != allocations.end() && it->second->begin < begin + bytes) {
    forget(it->second);
    it = allocations.erase(it);
  }
  Memory* m = new Memory;
  m->begin = begin;
  m->end = begin + bytes;
  m->guard = guard;
  m->space = Space::kGlobal;
  m->poisoned = fresh;
  if (fresh) fill_poison(reinterpret_cast<void*>(begin), bytes);
  tensors_known = true;
  auto& slot = allocations[begin];
  if (slot) forget(slot);
  slot = m;
}

constexpr size_t kNear = 1 << 16;

void add_allocation(const void* begin, size_t bytes, bool fresh) {
  add(reinterpret_cast<uintptr_t>(begin), bytes, fresh, kNear);
}

void drop_allocation(const void* begin) {
  std::lock_guard<std::mutex> lock(mutex);
  auto it = allocations.find(reinterpret_cast<uintptr_t>(begin));
  if (it == allocations.end()) return;
  forget(it->second);
  allocations.erase(it);
}

EXPORT void simt_add_allocation(const void* begin, size_t bytes, int fresh) {
  add_allocation(begin, bytes, fresh);
}
EXPORT void simt_add_guarded_allocation(const void* begin, size_t bytes, size_t guard) {
  add(reinterpret_cast<uintptr_t>(begin), bytes, true, guard);
}
EXPORT void simt_drop_allocation(const void* begin) { drop_allocation(begin); }

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
  r->begin = address & ~uintptr_t(4095);
  r->end = r->begin + 4096;
  for (auto& i : ignored)
    if (address >= i.first && address < i.second) r->space = Space::kIgnored;
  if (r->space == Space::kOther && is_heap(address)) r->space = Space::kHost;
  return r;
}

Memory* find_memory(uintptr_t address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto next = allocations.upper_bound(address);
  Memory* best = nullptr;
  uintptr_t distance = ~uintptr_t(0);
  if (next != allocations.begin()) {
    best = std::prev(next)->second;
    if (address < best->end) return best;
    distance = address - best->end;
    if (distance >= best->guard) best = nullptr, distance = ~uintptr_t(0);
  }
  if (next != allocations.end()) {
    Memory* above = next->second;
    if (above->begin - address <= above->guard && above->begin - address < distance) best = above;
  }
  return best ? best : page_of(address);
}

// How many of `bytes` from `begin` are as fresh memory was: no kernel and nobody else wrote them.
// -1: this memory was not filled when it was allocated. *first is the offset of the first.
EXPORT long long simt_access_unwritten(const void* begin, size_t bytes, long long* first) {
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
  two[0].begin = base;
  two[0].end = base + kSharedArena;
  two[0].space = Space::kStaticShared;
  two[1].begin = base + kSharedArena;
  two[1].end = base + kSharedArena + kDynamicLimit + 4096;
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
