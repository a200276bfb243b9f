// An uneven split of the units over the stages, for models whose ends cost more than a block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/units.h"

namespace lockstep::schedule {

// First unit of each stage, then the number of units, as StepShape wants it: `costs` are those of one
// microbatch through each unit, and the dearest stage is as cheap as can be. Every unit has exactly one stage, and no stage is empty. Time is in
// stages x units^2. REQUIRES: 1 <= stages <= units.
std::vector<std::int32_t> balance_units(std::span<const Seconds> costs, int stages);

}  // namespace lockstep::schedule
