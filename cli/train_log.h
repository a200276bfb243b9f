// What rank 0 of `lockstep train` tells while it runs, and at the end. Silent for --json until then.
#pragma once

#if LOCKSTEP_WITH_TORCH
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/run_trace.h"
#include "cli/verb.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

struct TrainWishes {
  std::int64_t every = 1;  // steps between two lines
  RunFiles files = {};
};

ExitCode exit_code_of(train::Ending ending);

// Belongs to the thread of rank 0. The job must outlive it.
class TrainLog {
 public:
  TrainLog(const train::Job& job, std::string ranks, const TrainWishes& wishes, Output& output);

  void begin() const;
  void step(std::int64_t step, const train::StepReport& report, bool is_last);
  // Writes the files that were wished for, too.
  ExitCode conclude(train::Ending ending, const cost::RunTimeline& measured);

 private:
  bool measures_noise() const { return job_.program.step.noise; }
  std::string bold(const std::string& text) const;
  std::string dim(const std::string& text) const;
  void row(const char* label, const std::string& text) const;
  std::string compared(const train::StepReport& report);
  Json json(train::Ending ending) const;

  const train::Job& job_;
  const train::Prediction prediction_;                     // of a step of the whole batch
  std::map<std::int64_t, train::Prediction> predictions_;  // by sequences
  const std::string ranks_;
  const std::int64_t every_;
  const RunFiles files_;
  Output& output_;
  std::vector<train::StepReport> reports_;
  Seconds time_;  // since the last line, as are those below
  std::int64_t tokens_ = 0, steps_ = 0;
};

}  // namespace lockstep::cli
#endif
