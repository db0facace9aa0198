// The environment variables that steer a run.
#include <sched.h>

#include <algorithm>
#include <cstdlib>

#include "block.h"

namespace simt {

static double number(const char* name, double otherwise) {
  const char* text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

static unsigned usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set)) return 1;
  return CPU_COUNT(&set);
}

const Settings& settings() {
  static const Settings s{
      std::clamp(unsigned(number("STEELYARD_SIMT_THREADS", usable_cores())), 1u, 16u),
      unsigned(number("STEELYARD_SIMT_SEED", 0)),
      number("STEELYARD_SIMT_SPIN_S", 1.0),
      number("STEELYARD_SIMT_STUCK_S", 20.0),
  };
  return s;
}

}  // namespace simt
