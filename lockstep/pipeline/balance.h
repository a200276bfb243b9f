// An uneven split of units over the stages of a pipeline, for models whose ends cost more than a
// block.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lockstep::pipeline {

// What it costs a stage to hold the units from `begin` up to `end`; infinite where it cannot hold
// them. May not fall as `end` grows.
using StageCost = std::function<double(int stage, int begin, int end)>;

// First unit of each stage, then the number of units, as StepShape wants it: of all splits in which
// no stage is empty, one whose dearest stage is as cheap as can be, and of those the one that fills
// the earliest stages most. Absent when every split has a stage of infinite cost. By dynamic
// programming over stages: at most stages x units^2 / 2 costs are asked for, far fewer when they
// grow steadily. REQUIRES: 1 <= stages <= units.
std::optional<std::vector<std::int32_t>> balance_units(int units, int stages,
                                                       const StageCost& cost);

}  // namespace lockstep::pipeline
