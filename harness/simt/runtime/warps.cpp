// Lanes of a warp meeting: shuffles, votes, reductions, __syncwarp, __activemask.
#include "simt/warp.h"

#include <cstring>

#include "machine.h"

namespace simt {

unsigned lane() { return worker && worker->current->block ? worker->current->thread % kWarp : 0; }

static std::string hex(uint32_t mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

static void complete(Block& b, Warp& w, size_t i) {
  Meeting* m = w.open[i];
  w.open.erase(w.open.begin() + i);
  for (unsigned l = 0; l < kWarp; ++l)
    if ((m->arrived >> l & 1) && m->lanes[l]) push(b, m->lanes[l]);
  ++w.epoch;
  b.preempted = 0;
  count_progress();
  if (observer) observer->warp_barrier(b, unsigned(&w - b.warps.data()), m->arrived);
}

static void wrong_mask(const Block& b, const Waiting& at, unsigned l) {
  fail("wrong warp mask",
       ("wrong warp mask: " + thread_name(b.index, worker->current->index) + " is lane " +
        std::to_string(l) + ", which its own mask " + hex(at.mask) + " of " + at.kind +
        " does not name")
           .c_str(),
       at.file, at.line);
}

static void diverged(const Block& b, const Waiting& here, const Waiting& there) {
  fail("diverged warp",
       ("diverged warp: " + thread_name(b.index, worker->current->index) + " is at " + here.kind +
        " of line " + std::to_string(here.line) + " with mask " + hex(here.mask) +
        " while other lanes of that mask are at " + there.kind + " of line " +
        std::to_string(there.line))
           .c_str(),
       here.file, here.line, nullptr, there.line);
}

static Meeting* open_meeting(Worker& w, Warp& warp, const Waiting& here) {
  Meeting* m;
  if (w.meetings.empty()) {
    m = new Meeting;
  } else {
    m = w.meetings.back();
    w.meetings.pop_back();
  }
  m->mask = here.mask;
  m->arrived = 0;
  m->readers = 0;
  m->at = here;
  warp.open.push_back(m);
  return m;
}

// __syncwarp may pair with another __syncwarp; the others need the same instruction.
static bool pairs(const Waiting& a, const Waiting& b) {
  return !strcmp(a.kind, b.kind) && (a.line == b.line || !strcmp(a.kind, "__syncwarp"));
}

static Meeting* meet(const Waiting& here, const void* value, unsigned bytes) {
  if (!in_kernel()) fail("misuse", (std::string(here.kind) + " outside a kernel").c_str(), here.file, here.line);
  Worker& w = *worker;
  Fiber* self = w.current;
  Block& b = *self->block;
  unsigned l = self->thread % kWarp;
  Warp& warp = b.warps[self->thread / kWarp];
  if (!(here.mask >> l & 1)) wrong_mask(b, here, l);
  Meeting* m = nullptr;
  size_t i = 0;
  for (; i < warp.open.size(); ++i)
    if (warp.open[i]->mask == here.mask && !(warp.open[i]->arrived >> l & 1)) {
      m = warp.open[i];
      break;
    }
  if (!m) m = open_meeting(w, warp, here);
  else if (!pairs(m->at, here)) diverged(b, here, m->at);
  memcpy(m->values[l], value, bytes);
  m->arrived |= 1u << l;
  ++m->readers;
  if ((here.mask & warp.alive & ~m->arrived) == 0) {
    m->lanes[l] = nullptr;
    complete(b, warp, i);
  } else {
    m->lanes[l] = self;
    park(here);
  }
  return m;
}

static void leave(Meeting* m) {
  if (--m->readers == 0) worker->meetings.push_back(m);
}

void sync_warp(uint32_t mask, const char* file, int line) {
  char nothing = 0;
  leave(meet({"__syncwarp", file, line, mask}, &nothing, 0));
}

static void outsider(const Waiting& at, int source) {
  note("wrong warp mask", Severity::warning,
       std::string(at.kind) + " reads lane " + std::to_string(source) + ", which its mask " +
           hex(at.mask) + " does not name or which has returned; the value is undefined",
       at);
}

void shuffle(uint32_t mask, void* value, unsigned bytes, int source, const char* kind,
             const char* file, int line) {
  Waiting here{kind, file, line, mask};
  Meeting* m = meet(here, value, bytes);
  unsigned s = unsigned(source) % kWarp;
  if (m->arrived >> s & 1) memcpy(value, m->values[s], bytes);
  else {
    if (!(mask >> s & 1)) outsider(here, s);
    memset(value, 0xff, bytes);
  }
  leave(m);
}

uint32_t ballot(uint32_t mask, bool predicate, const char* kind, const char* file, int line) {
  unsigned char v = predicate;
  Meeting* m = meet({kind, file, line, mask}, &v, 1);
  uint32_t r = 0;
  for (unsigned l = 0; l < kWarp; ++l)
    if (m->arrived >> l & 1) r |= uint32_t(m->values[l][0]) << l;
  leave(m);
  return r;
}

uint32_t gather(uint32_t mask, const void* value, unsigned bytes, void* values, const char* kind,
                const char* file, int line) {
  Meeting* m = meet({kind, file, line, mask}, value, bytes);
  for (unsigned l = 0; l < kWarp; ++l)
    memcpy(static_cast<char*>(values) + l * bytes, m->values[l], bytes);
  uint32_t there = m->arrived;
  leave(m);
  return there;
}

// The lanes that get here before everything else of the block waits: what a warp that runs in
// lockstep would see.
uint32_t active_mask(const char* file, int line) {
  if (!in_kernel()) return 1;
  Fiber* self = worker->current;
  Block& b = *self->block;
  Warp& warp = b.warps[self->thread / kWarp];
  warp.converging.push_back(self);
  ++b.converging;
  park({"__activemask", file, line, 0});
  return self->converged;
}

bool release_converging(Block& b) {
  for (Warp& warp : b.warps) {
    for (Fiber* f : warp.converging) {
      f->converged = 0;
      for (Fiber* g : warp.converging)
        if (g->waiting.line == f->waiting.line) f->converged |= 1u << (g->thread % kWarp);
    }
    for (Fiber* f : warp.converging) push(b, f);
    warp.converging.clear();
  }
  b.converging = 0;
  return true;
}

void lane_returned(Block& b, Warp& warp, unsigned thread) {
  warp.alive &= ~(1u << thread % kWarp);
  for (size_t i = 0; i < warp.open.size();) {
    Meeting* m = warp.open[i];
    if (m->mask & warp.alive & ~m->arrived) {
      ++i;
      continue;
    }
    note("wrong warp mask", Severity::error,
         std::string(m->at.kind) + " names lanes " + hex(m->mask & ~m->arrived) +
             " that have already returned; what it gives is undefined",
         m->at);
    complete(b, warp, i);
  }
}

}  // namespace simt
