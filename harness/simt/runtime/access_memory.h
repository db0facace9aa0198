// Which piece of memory an address belongs to, and its shadow.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

struct Block;

// Who last wrote and who last read four bytes: a context (a thread at one moment of its life) and
// the site of the access. Context 0: nobody. A cell is split in four when bytes differ.
struct Cell {
  uint32_t write = 0, write_site = 0;
  uint32_t read = 0, read_site = 0;
  uint32_t read2 = 0, read2_site = 0;
};
constexpr uint32_t kAtomic = 1u << 31;     // flag of a site: the access was atomic
constexpr uint32_t kSplit = 0xffffffffu;   // in write_site: `write` is the index of four cells

enum class Space : uint8_t { kGlobal, kStaticShared, kDynamicShared, kOther, kHost, kIgnored };

struct Memory {
  uintptr_t begin = 0, end = 0;              // what may be touched
  uintptr_t guard = 0;                       // this close to it an address was meant for it
  Space space = Space::kOther;
  bool poisoned = false;  // was filled with poison_word when it was allocated
  Cell* cells = nullptr;  // one for every four bytes from begin, mapped on first use
  size_t cells_bytes = 0;
  unsigned long long round = 0;  // launch that touched it last
};

Memory* find_memory(uintptr_t address);  // the nearest, never nullptr; pages are made on demand
bool is_mapped(uintptr_t address, size_t bytes);
void ignore_memory(const void* begin, const void* end);  // the runtime's own, the host's stack
Cell* cells_of(Memory&);
Memory* shared_memory_at(Block&, uintptr_t address, bool* in_arena);
Cell* split(Cell&);
Cell* parts(const Cell&);

// The pattern of fresh memory: differs by address, a NaN in every floating type.
uint32_t poison_word(uintptr_t address);
void fill_poison(void* begin, size_t bytes);

}  // namespace simt
