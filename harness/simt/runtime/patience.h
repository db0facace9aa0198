// When a launch has hung: every block on every OS thread waits, and nothing has moved for a while.
#pragma once
#include "block.h"

namespace simt {

struct Patience {
  unsigned long long progress = 0;
  double since = 0;

  bool over(Worker&, Launch&);
};

void give_up(Worker&, Launch&);  // ends the launch with a fault that names who waits where

}  // namespace simt
