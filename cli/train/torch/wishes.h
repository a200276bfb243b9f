// What the command line of `lockstep train` asks for, apart from the run file.
#pragma once

#include <cstdint>
#include <string>

#include "cli/train/run_trace.h"
#include "cli/verb.h"
#include "lockstep/base/result.h"
#include "lockstep/spec/spec.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

// Besides what becomes of the run: what is told of it.
struct TrainWishes : train::RunOptions {
  std::int64_t every = 1;  // steps between two lines
  bool oracle = false;     // print bits and a digest of the state, and nothing else
  RunFiles files = {};
  std::string metrics = {};  // directory of metrics.jsonl and event files; empty: none
};

// Refuses wishes that contradict each other, and files that cannot be written.
Result<TrainWishes> read_wishes(const Args& args, const spec::Spec& spec);

// Refuses directories that hold what another run has made, and one without a checkpoint to resume from,
// so that no run is written over and none begins with random weights by accident. What a run left that
// ended before its first checkpoint is in nobody's way. To be asked before any rank has written.
Result<void> check_places(const TrainWishes& wishes);

}  // namespace lockstep::cli
