#include "patience.h"

#include <chrono>

namespace simt {

static unsigned long long total_progress(const Launch& l) {
  unsigned long long sum = l.done.load();
  for (Worker* w : l.workers) sum += *w->progress;
  return sum;
}

static double now_s() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

void give_up(Worker& w, Launch& l) {
  for (Block* b : w.resident)
    for (Fiber* f : b->live) {
      if (f->state != State::kSpinning) continue;
      const bool full = l.resident.load() >= l.max_resident && l.next.load() < l.blocks;
      std::string why = "waits for a store that never comes";
      if (full)
        why += " (only " + std::to_string(l.max_resident) + " of " + std::to_string(l.blocks) +
               " blocks fit on the device at once, the others cannot start)";
      w.current = b;
      stop(l, "spin", why, f, f->at, f->pc);
      return;
    }
  if (!w.resident.empty())
    stop(l, "deadlock", "blocks wait at a grid barrier that others never reach", nullptr, Site{},
         nullptr);
}

// A thread that was preempted, rather than caught in a row of idle atomics, may just be busy.
static bool any_preempted(const Worker& w) {
  for (const Block* b : w.resident)
    for (const Fiber* f : b->live)
      if (f->state == State::kSpinning && f->pc) return true;
  return false;
}

bool Patience::over(Worker& w, Launch& l) {
  const unsigned long long p = total_progress(l);
  bool everyone = true;
  for (Worker* o : l.workers) everyone &= o->all_wait.load();
  if (p != progress || !everyone || since == 0) {
    progress = p;
    since = now_s();
    return false;
  }
  const double idle = now_s() - since;
  if (idle <= settings().spin_s) return false;
  return idle > settings().stuck_s || !any_preempted(w);
}

}  // namespace simt
