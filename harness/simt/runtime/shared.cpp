// Where a block's __shared__ variables lie: one arena per resident block, dynamic memory first,
// red zones between.
#include "simt/shared.h"

#include <cstring>

#include "machine.h"

namespace simt {

static std::atomic<int> next_id{0};

static int id_of(SharedSite& s) {
  int id = __atomic_load_n(&s.id, __ATOMIC_ACQUIRE);
  if (id >= 0) return id;
  int fresh = next_id.fetch_add(1), expected = -1;
  return __atomic_compare_exchange_n(&s.id, &expected, fresh, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE)
             ? fresh
             : expected;
}

static void declare(Block& b, const SharedVariable& v) {
  b.variables.push_back(v);
  b.shared = b.variables.data();
  b.shared_count = unsigned(b.variables.size());
  if (observer) observer->shared_declared(b, v);
}

static void* place(Block& b, const SharedSite& s, int id) {
  b.static_bytes = (b.static_bytes + s.align - 1) / s.align * s.align + s.bytes;
  if (b.static_bytes > kStaticLimit || b.static_bytes + b.launch->dynamic_shared > kDynamicLimit) {
    std::string m = std::string("kernel ") + b.launch->kernel + " declares at least " +
                    std::to_string(b.static_bytes) + " bytes of static shared memory" +
                    (b.launch->dynamic_shared
                         ? " beside " + std::to_string(b.launch->dynamic_shared) + " dynamic ones"
                         : "") +
                    "; sm_90 has 49152 static and 232448 in all (\"" + s.name + "\")";
    fail("launch refused", m.c_str(), s.file, s.line);
  }
  size_t align = s.align < 16 ? 16 : s.align;
  size_t from = (b.used + kRedZone + align - 1) / align * align;
  b.used = from + s.bytes;
  void* where = b.memory + from;
  memset(where, 0xff, s.bytes);  // reads before writes give NaN
  if (b.addresses.size() <= size_t(id)) b.addresses.resize(id + 16);
  b.addresses[id] = {b.serial, where};
  declare(b, {s.name, s.file, s.line, where, s.bytes, false});
  return where;
}

void* SharedSite::get() {
  if (!in_kernel()) fail("misuse", "a __shared__ variable outside a kernel", file, line);
  Block& b = *worker->current->block;
  int i = id >= 0 ? id : id_of(*this);
  if (size_t(i) < b.addresses.size() && b.addresses[i].first == b.serial)
    return b.addresses[i].second;
  return place(b, *this, i);
}

void* dynamic_shared(const char* name, size_t) {
  if (!in_kernel()) fail("misuse", "extern __shared__ outside a kernel", nullptr, 0);
  Block& b = *worker->current->block;
  if (b.launch->dynamic_shared) {
    for (const SharedVariable& v : b.variables)
      if (v.dynamic) return b.memory;
    declare(b, {name, nullptr, 0, b.memory, b.launch->dynamic_shared, true});
  }
  return b.memory;
}

const SharedVariable* find_shared(const void* address) {
  if (!in_kernel()) return nullptr;
  for (const SharedVariable& v : worker->current->block->variables) {
    auto* from = static_cast<const char*>(v.address);
    if (address >= from && address < from + v.bytes) return &v;
  }
  return nullptr;
}

}  // namespace simt
