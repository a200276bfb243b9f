// What verbs need LibTorch for. It is in a module beside the program, liblockstep_torch.so, which
// is loaded when the first such verb runs: loading LibTorch takes 0.2 s, ten times what most other
// verbs take in all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/verb.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/finding.h"
#include "lockstep/base/result.h"
#include "lockstep/comm/backend.h"
#include "lockstep/hf/export.h"
#include "lockstep/model/arch.h"

namespace lockstep::cli {

// Of every unit, [tokens, columns] in row-major order; of the last one logits. Refuses as
// generate::Decoder does.
using UnitOutputs = Result<std::vector<std::vector<double>>>;

struct Engine {
  Result<ExitCode> (*train)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*generate)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*verify)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*audit)(const Args& args, Output& output) = nullptr;
  Result<ExitCode> (*calibrate)(const Args& args, Output& output) = nullptr;
  UnitOutputs (*unit_outputs)(const model::Model& model, hf::ParamSource& params,
                              std::span<const std::int64_t> tokens, DType dtype) = nullptr;
  std::span<const comm::Backend> (*backends)() = nullptr;
  std::vector<Finding> (*check)() = nullptr;          // what of it works on this machine
  std::vector<Finding> (*check_devices)() = nullptr;  // and on its GPUs
};

// The functions of that table, each in torch/run.cc of its verb.
Result<ExitCode> run_train(const Args& args, Output& output);
Result<ExitCode> run_generate(const Args& args, Output& output);
Result<ExitCode> run_verify(const Args& args, Output& output);
Result<ExitCode> run_audit(const Args& args, Output& output);
Result<ExitCode> run_calibrate(const Args& args, Output& output);
UnitOutputs unit_outputs(const model::Model& model, hf::ParamSource& params,
                         std::span<const std::int64_t> tokens, DType dtype);

// For `user`, named in the error: a build without LibTorch has no engine, and the module or
// LibTorch may fail to load. The engine lives as long as the process. Any thread.
Result<const Engine*> load_engine(const std::string& user);

}  // namespace lockstep::cli
