// `lockstep calibrate --all`: what `lockstep plan --calibration` needs to time every layout.
#pragma once

#include "cli/verb.h"

namespace lockstep::cli {

// A file for each microbatch, tensor degree and set of recomputed rows, in the directory --out.
ExitCode calibrate_all(const Args& args, Output& output);

}  // namespace lockstep::cli
