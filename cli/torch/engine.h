// The functions that cli/engine.h names, each in the file of its verb.
#pragma once

#include "cli/engine.h"

namespace lockstep::cli {

ExitCode run_train(const Args& args, Output& output);      // train.cc
ExitCode run_verify(const Args& args, Output& output);     // verify.cc
ExitCode run_calibrate(const Args& args, Output& output);  // calibrate.cc

}  // namespace lockstep::cli
