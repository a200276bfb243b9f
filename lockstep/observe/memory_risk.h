// How likely a step runs out of memory, given how far off verdicts on published runs were. Pure
// functions.
#pragma once

#include "lockstep/observe/posterior.h"

namespace lockstep::observe {

// Of ln(needed / predicted), where cost::device_bytes() are what is predicted: the normal
// distribution under which verdicts on published runs are likeliest. From "Out of memory" in
// docs/accuracy.md, which `lockstep backtest` writes; a test holds the two to each other.
Belief published_need();

// The share of runs like it that need more than a device has.
double out_of_memory(const Belief& need, double predicted_bytes, double has_bytes);

// Share of a device's memory to leave free by prediction, so that out_of_memory() is `risk`;
// negative where more may be predicted than there is. REQUIRES: 0 < risk < 1.
double headroom_at(const Belief& need, double risk);

}  // namespace lockstep::observe
