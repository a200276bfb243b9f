// What the command line of `lockstep train` asks for, apart from the run file.
#pragma once

#if LOCKSTEP_WITH_TORCH
#include <cstdint>
#include <string>

#include "cli/run_trace.h"
#include "cli/verb.h"
#include "lockstep/base/result.h"
#include "lockstep/plan/spec.h"

namespace lockstep::cli {

// Where the state of the first step comes from.
enum class Start : std::uint8_t {
  kNew,       // initial weights
  kContinue,  // a checkpoint, with all that belongs to its run
  kWeights,   // the weights of a checkpoint; everything else is new
};

struct TrainWishes {
  std::int64_t every = 1;  // steps between two lines
  bool oracle = false;     // print bits and a digest of the state, and nothing else
  RunFiles files = {};
  std::string metrics = {};        // directory of metrics.jsonl and event files; empty: none
  std::string save = {};           // directory of checkpoints; empty: none are made
  std::int64_t save_interval = 0;  // steps; 0: only where the run ends
  std::int64_t keep = 0;           // newest checkpoints; 0: all
  Start start = Start::kNew;
  std::string from = {};  // the checkpoint, or a directory of them
  bool resumes = false;   // goes on where `save` and `metrics` end
};

// Refuses wishes that contradict each other, and files that can not be written.
Result<TrainWishes> read_wishes(const Args& args, const plan::Spec& spec);

// Refuses directories that hold what another run has made, and one without a checkpoint to resume from,
// so that no run is written over and none begins with random weights by accident. To be asked before any
// rank has written.
Result<void> check_places(const TrainWishes& wishes);

}  // namespace lockstep::cli
#endif
