// What every rank of `lockstep train` does, from its first step to its last.
#pragma once

#if LOCKSTEP_WITH_TORCH
#include <optional>

#include "cli/train_data.h"
#include "cli/train_log.h"
#include "cli/train_wishes.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/cost/run_timeline.h"
#include "lockstep/train/job.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

struct RankEnding {
  train::Ending ending = train::Ending::kFinished;
  cost::RunTimeline measured = {};    // of all ranks, when that is wanted
  std::optional<Error> refused = {};  // why nothing was trained; the same on all ranks
};

// Rank 0 has a log and tells. Throws WorldError.
RankEnding train_rank(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
                      comm::World& world, TrainLog* log);

}  // namespace lockstep::cli
#endif
