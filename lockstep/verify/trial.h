// A few steps of a job, run for the sake of looking at them: every rank's memory, traffic and state
// are recorded, and the pieces of state are put together into whole images.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/ledger.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/data/token_source.h"
#include "lockstep/train/job.h"
#include "lockstep/train/session.h"
#include "lockstep/verify/image.h"

namespace lockstep::verify {

// One step to run.
struct StepOrder {
  std::int64_t step = 0;            // its number: decides samples and learning rate
  const StepImage* from = nullptr;  // state to start from, that after step - 1; absent: as it is
};

// What one rank measured during one step.
struct RankStep {
  train::StepReport report;
  std::vector<std::int64_t> live;  // tensor bytes after every op
  std::map<comm::Ledger::Key, comm::Ledger::Entry> ledger;
};

// What one rank has to say about its whole trial.
struct RankRecord {
  Rank rank;
  std::vector<RankStep> steps;  // one per order
};

struct TrialResult {
  std::vector<StepImage> images;  // one per order; empty on other processes than rank 0's
  std::string disagreement;       // of replicas, see ImageBuilder; empty: none
  std::vector<RankRecord> ranks;  // of all ranks that ran in this process
};

struct TrialOptions {
  comm::LocalOptions world = {};
  train::WorkspaceWrap wrap = {};   // of every rank's workspace
  comm::WorldWrap wrap_world = {};  // of every rank's world
};

// Ranks are threads of this process.
TrialResult run_trial(const train::Job& job, const data::TokenSource& source,
                      std::span<const StepOrder> orders, Seconds op_deadline,
                      const TrialOptions& options = {});

// This process is one rank of `world`. Pieces travel to rank 0. `label` must differ among the
// trials of a world.
TrialResult run_trial_in(comm::World& world, const std::string& label, const train::Job& job,
                         const data::TokenSource& source, std::span<const StepOrder> orders,
                         Seconds op_deadline, const train::WorkspaceWrap& wrap = {});

}  // namespace lockstep::verify
