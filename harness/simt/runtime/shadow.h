// Shadow memory of the checked mode: who last touched each 4-byte word, and how.
#pragma once
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace simt {

struct Touch {  // one access to some bytes of a word
  uint64_t block = 0;  // serial, 0: none
  const void* pc = nullptr;
  uint32_t thread = 0, barrier = 0, meeting = 0, release = 0;
  uint8_t bytes = 0;  // bit i: byte i of the word
  bool atomic = false;
};

struct Word {
  Touch write, read, other_read;  // the last reads of two different threads
  uint8_t written = 0;            // bytes some kernel has written
};

class Shadow {
 public:
  static constexpr uintptr_t kPageBytes = 4096;

  Word& at(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    if (page != last_page_ || !last_) {
      auto& slot = pages_[page];
      if (slot.empty()) slot.resize(kPageBytes / 4);
      last_ = slot.data();
      last_page_ = page;
    }
    return last_[address % kPageBytes / 4];
  }
  void clear() {  // keeps the pages of the arena, which the next block uses again
    for (auto& page : pages_) page.second.assign(kPageBytes / 4, Word{});
  }
  void forget(uintptr_t begin, uintptr_t end) {
    for (uintptr_t page = begin / kPageBytes; page <= (end - 1) / kPageBytes; ++page) {
      auto found = pages_.find(page);
      if (found == pages_.end()) continue;
      for (uintptr_t i = 0; i < kPageBytes / 4; ++i) {
        const uintptr_t a = page * kPageBytes + 4 * i;
        if (a + 4 > begin && a < end) found->second[i] = Word{};
      }
    }
  }

 private:
  std::unordered_map<uintptr_t, std::vector<Word>> pages_;
  Word* last_ = nullptr;
  uintptr_t last_page_ = 0;
};

}  // namespace simt
