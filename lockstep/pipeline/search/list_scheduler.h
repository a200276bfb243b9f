// Makes a schedule by rules alone: whenever a pipeline rank is free and something can run, it runs.
// That ignores structure, so it loses to the named schedules where memory is tight, and beats them
// where stages differ, hops are long or memory is plenty.
#pragma once

#include <cstdint>

#include "lockstep/pipeline/schedule.h"
#include "lockstep/pipeline/search/stage_problem.h"

namespace lockstep::pipeline {

struct ListRules {
  // Which of F and I goes first where both can run; W comes last.
  enum class First : std::uint8_t { kInputGrad, kForward } first = First::kInputGrad;
  // Which chunk's F goes first.
  enum class Chunk : std::uint8_t { kDeepest, kShallowest } chunk = Chunk::kDeepest;
  // How much of max_held pipeline rank r may fill: all of it, or as much less as 1F1B would hold
  // less.
  enum class Room : std::uint8_t { kEqual, kTapered } room = Room::kEqual;
  bool operator==(const ListRules&) const = default;
};

// F runs only if room for one activation of every deeper chunk of its pipeline rank stays free:
// those are on the microbatch's way to its gradient, so memory can never block all. The result
// holds at most max_held and runs W apart from I. Deterministic; any thread may call it.
Schedule list_schedule(const StageProblem& problem, const ListRules& rules);

}  // namespace lockstep::pipeline
