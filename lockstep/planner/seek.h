// The answer to a question. Every schedule is sought by itself, so that none alone has a better
// answer: a walk's best of every set of degrees are simulated, and so are the neighbours of the
// fastest until none is faster; at last those of the one that is chosen, so that no neighbour that
// explain.h finds is faster, but for ties. A pure function; any thread may call it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/planner/finalists.h"

namespace lockstep::planner {

struct Sought {
  std::vector<Finalist> best;  // ranked, one for each set of degrees, at most 64
  std::int64_t layouts = 0, priced = 0, simulated = 0;
  double least_bytes = 0;  // when none fits, as Walk::least_bytes
};

Sought seek(const Question& question);

// Seconds that no layout of seek() takes less than, found without a simulation: the best closed
// form, over the most that a simulation is faster. Infinite where none fits.
double least_seconds(const Question& question);

// The first of them; where none fits, the one that needs least memory: the first on devices that by
// closed form are just large enough. Absent where nothing divides.
std::optional<Finalist> seek_one(const Question& question);

}  // namespace lockstep::planner
