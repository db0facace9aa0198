// Warp intrinsics: the live lanes named in a mask meet, each bringing a value the others may read.
#include <cstring>

#include "access.h"
#include "block.h"

namespace simt {

static Meet* new_meet(Worker& w, unsigned mask, unsigned size, Site site) {
  Meet* m;
  if (w.idle_meets.empty()) {
    m = new Meet;
  } else {
    m = w.idle_meets.back();
    w.idle_meets.pop_back();
  }
  m->mask = mask;
  m->arrived = m->readers = m->waiting = 0;
  m->size = size;
  m->site = site;
  return m;
}

static bool complete(const Warp& warp, const Meet* m) {
  return (m->mask & warp.alive & ~m->arrived) == 0;
}

static void release(Block& b, Warp& warp, Meet* m) {
  for (size_t i = 0; i < warp.pending.size(); ++i)
    if (warp.pending[i] == m) {
      warp.pending.erase(warp.pending.begin() + i);
      break;
    }
  m->readers = __builtin_popcount(m->arrived);
  for (unsigned i = 0; i < m->waiting; ++i) b.ready.push(static_cast<Fiber*>(m->fiber[i]));
  ++warp.epoch;
  ++simt_progress;
}

// A pending meeting that names this lane under another mask is no fault yet: the lane may come to it
// later. If it never does, the block ends in a deadlock that explain_deadlock puts into words.
static Meet* find_pending(const Warp& warp, unsigned mask, Site site) {
  for (Meet* m : warp.pending)
    if (m->mask == mask && strcmp(m->site.what, site.what) == 0) return m;
  return nullptr;
}

Meet* meet(unsigned mask, const void* value, unsigned size, Site site) {
  Worker& w = *tls_worker;
  Block& b = *w.current;
  Warp& warp = b.warps[tls_self->tid / 32];
  const unsigned self = 1u << simt_lane;
  if (!(mask & self)) {
    char text[120];
    snprintf(text, sizeof text, "lane %u calls %s with mask 0x%08x, which does not name it",
             simt_lane, site.what, mask);
    fault("wrong mask", text, site);
  }
  Meet* m = find_pending(warp, mask, site);
  if (!m) {
    m = new_meet(w, mask, size, site);
    warp.pending.push_back(m);
  }
  m->arrived |= self;
  memcpy(m->value[simt_lane], value, size);
  if (complete(warp, m)) {
    release(b, warp, m);
    return m;
  }
  m->fiber[m->waiting++] = tls_self;
  tls_self->meet = m;
  tls_self->state = State::kAtMeet;
  tls_self->at = site;
  tls_self->pc = nullptr;
  suspend();
  return m;
}

void leave(Meet* m) {
  if (--m->readers == 0) tls_worker->idle_meets.push_back(m);
}

void warp_barrier(unsigned mask, Site site) {
  const char nothing = 0;
  Meet* m = meet(mask, &nothing, sizeof nothing, site);
  Block& b = *tls_worker->current;
  const bool first = m->readers == static_cast<unsigned>(__builtin_popcount(m->arrived));
  if (first && b.launch->kernel.checked) access_warp_sync(b, tls_self->tid / 32, m->arrived);
  leave(m);
}

// Each live lane that can still come waits at the site; those held up elsewhere are left out. Lanes
// are resolved when nothing else in the block can run.
unsigned together(Site site) {
  Block& b = *tls_worker->current;
  tls_self->state = State::kGathering;
  tls_self->at = site;
  tls_self->pc = nullptr;
  b.gathering.push_back(tls_self);
  suspend();
  return tls_self->group;
}

bool release_gathered(Block& b) {
  if (b.gathering.empty()) return false;
  for (Fiber* f : b.gathering) {
    f->group = 0;
    for (const Fiber* g : b.gathering)
      if (g->tid / 32 == f->tid / 32 && g->at.line == f->at.line) f->group |= 1u << (g->tid % 32);
  }
  for (Fiber* f : b.gathering) b.ready.push(f);
  b.gathering.clear();
  return true;
}

unsigned live_lanes() { return tls_worker->current->warps[tls_self->tid / 32].alive; }

void read_from_missing_lane(Site site) {
  find("missing lane", "error", std::string(site.what) + " reads from a lane that did not take part",
       site);
}

void meet_after_exit(Block& b, unsigned tid) {
  Warp& warp = b.warps[tid / 32];
  warp.alive &= ~(1u << (tid % 32));
  for (size_t i = 0; i < warp.pending.size();) {
    Meet* m = warp.pending[i];
    if (complete(warp, m))
      release(b, warp, m);
    else
      ++i;
  }
}

}  // namespace simt
