// Round marks on the axis of time.
#pragma once

#include <string>
#include <vector>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

struct Tick {
  Seconds time;
  std::string label;  // without unit
};

struct Axis {
  std::vector<Tick> ticks;  // ascending from 0; the last is not after the makespan
  std::string unit;         // "ms", or the figure's own; may be empty
};

// Steps of 1, 2 or 5 times a power of ten, so that there are at most `most` after the first.
// REQUIRES: most >= 1.
Axis axis_of(const Figure& figure, int most);

}  // namespace lockstep::draw
