// lockstep checkpoint verify and diff: what reads the bytes of checkpoints.
#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

ExitCode run_checkpoint_verify(const Args& args, Output& output);
ExitCode run_checkpoint_diff(const Args& args, Output& output);

}  // namespace lockstep::cli
