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

struct TrainWishes {
  std::int64_t every = 1;  // steps between two lines
  bool oracle = false;     // print bits and a digest of the state, and nothing else
  RunFiles files = {};
  std::string metrics = {};  // directory of metrics.jsonl and event files; empty: none
};

// Refuses wishes that contradict each other, and files that can not be written.
Result<TrainWishes> read_wishes(const Args& args, const plan::Spec& spec);

}  // namespace lockstep::cli
#endif
