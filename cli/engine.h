// What verbs need LibTorch for. It is in a module beside the program, liblockstep_torch.so, which
// is loaded when the first such verb runs: loading LibTorch takes 0.2 s, ten times what most other
// verbs take in all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "lockstep/base/finding.h"
#include "lockstep/base/result.h"
#include "lockstep/comm/backend.h"

namespace lockstep::cli {

struct Engine {
  Result<ExitCode> (*train)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*generate)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*verify)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*calibrate)(const Args& args, Output& output) = nullptr;
  std::span<const comm::Backend> (*backends)() = nullptr;
  std::vector<Finding> (*check)() = nullptr;          // what of it works on this machine
  std::vector<Finding> (*check_devices)() = nullptr;  // and on its GPUs
};

// The functions of that table, each in torch/run.cc of its verb.
Result<ExitCode> run_train(const Args& args, Output& output);
Result<ExitCode> run_generate(const Args& args, Output& output);
Result<ExitCode> run_verify(const Args& args, Output& output);
Result<ExitCode> run_calibrate(const Args& args, Output& output);

// For `user`, named in the error: a build without LibTorch has no engine, and the module or
// LibTorch may fail to load. The engine lives as long as the process. Any thread.
Result<const Engine*> load_engine(const std::string& user);

}  // namespace lockstep::cli
