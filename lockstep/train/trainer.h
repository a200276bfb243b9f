// The training loop of one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "lockstep/train/session.h"

namespace lockstep::train {

enum class Ending : std::uint8_t {
  kFinished,
  kStopped,   // some rank was asked to; all ranks ended after the same step
  kDiverged,  // loss or gradient norm was not finite, as often as the job allows
};

// Where the job skips steps that are not finite: how many in a row it may skip. A few are bad samples
// or a spike; ten are a model that is lost.
inline constexpr int kMostSkipped = 10;

// Runs steps [first, last). Calls `on_step` after each on this rank's thread. Every rank of the job
// gets the same ending after the same step. `stop` may be set at any time, also by a signal handler.
Ending train(Session& session, std::int64_t first, std::int64_t last, const std::atomic<bool>& stop,
             const std::function<void(std::int64_t step, const StepReport& report)>& on_step);

}  // namespace lockstep::train
