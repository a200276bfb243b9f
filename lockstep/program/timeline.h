// Ops with times, simulated or measured: both write this type with the same op indices, so that a
// prediction and a run can be compared op by op.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/base/units.h"

namespace lockstep::program {

// An asynchronous op appears when it is issued; what was still left of it appears at its Wait.
struct TimedOp {
  std::int32_t op = 0;  // index in the pipeline rank's list
  Seconds start;        // since the step began
  Seconds end;
  bool operator==(const TimedOp&) const = default;
};

// A part of a computation (parts/part.h). Names last as long as the program.
struct TimedPart {
  std::int32_t op = 0;          // whose
  std::string_view kind = {};   // "linear_weight"
  std::string_view param = {};  // "gate_up"; may be empty
  Seconds start = {}, end = {};
  bool is_beside = false;  // a collective, while it is under way
  bool operator==(const TimedPart&) const = default;
};

using Timeline = std::vector<TimedOp>;  // of one rank, in the order of its list

// One rank's step.
struct RankTimeline {
  Rank rank = {};
  Coord coord = {};     // whose list it ran
  Timeline ops = {};    // every op of the list once
  Timeline lanes = {};  // when asynchronous ops ran, by op index; those of which it is known
  std::vector<TimedPart> parts = {};  // in the order of the list, where they are known
  bool operator==(const RankTimeline&) const = default;
};

// All ranks, by rank. Times count from the moment at which the first of them began.
struct StepTimeline {
  std::int64_t step = 0;  // its number, from 0
  std::vector<RankTimeline> ranks = {};
  bool operator==(const StepTimeline&) const = default;

  // Until the last of them ended.
  Seconds makespan() const {
    Seconds end;
    for (const RankTimeline& rank : ranks)
      if (!rank.ops.empty() && end < rank.ops.back().end) end = rank.ops.back().end;
    return end;
  }
};

}  // namespace lockstep::program
