// Times one pass of a unit part by part, as nn/unit_runner.h runs it: parts in the order of the
// list, collectives beside them on a lane of their own in the order of issue, and a wait until its
// collective is done. A program's ops of one pass take the same time, so a step is timed with the
// lengths of its passes (simulator.h), and no program grows by its parts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/parts/place.h"
#include "lockstep/sim/simulator.h"

namespace lockstep::sim {

// Of a part alone, seconds that are not negative.
struct PartCost {
  Seconds list;  // of a collective: to issue it
  Seconds lane;  // of a collective, until it is done
  bool operator==(const PartCost&) const = default;
};

// How many parts run, waits left out: those of a repeat once for every chunk.
std::size_t count_parts(const parts::Pass& pass, parts::Sizes sizes);

struct PassTimes {
  std::vector<program::TimedPart> parts;  // of no op, since the pass began, by their end
  Seconds length;
};

// `costs`: of every part that runs, in order, waits left out. REQUIRES: count_parts() of them.
PassTimes simulate_pass(const parts::Pass& pass, parts::Sizes sizes,
                        std::span<const PartCost> costs, const Slowdown& slowdown = {});

}  // namespace lockstep::sim
