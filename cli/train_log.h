// What rank 0 of `lockstep train` tells while it runs, and at the end: a table with a progress bar
// below it on a terminal, bits with --oracle, and nothing until the end with --json.
#pragma once

#if LOCKSTEP_WITH_TORCH
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/train_wishes.h"
#include "cli/verb.h"
#include "lockstep/base/clock.h"
#include "lockstep/metrics/progress.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

ExitCode exit_code_of(train::Ending ending);

// Belongs to the thread of rank 0. The job must outlive it. Steps are numbers from 0.
class TrainLog {
 public:
  // `ranks`: "4 threads"; `data`: what is trained on.
  TrainLog(const train::Job& job, const std::string& ranks, const std::string& data,
           const TrainWishes& wishes, Output& output);

  // Before the first step.
  void begin();
  // Before the first step, of a run that begins with a checkpoint.
  void loaded(const train::Loaded& loaded);
  // The last checkpoint, after `steps` steps, can be loaded.
  void saved(std::int64_t steps);
  // `digest` of the state after the step, for --oracle.
  void step(std::int64_t step, const train::StepReport& report,
            std::optional<std::uint64_t> digest);
  void evaluation(std::int64_t step, const train::EvalReport& report);
  // Writes the files that were wished for, too.
  ExitCode conclude(train::Ending ending, const cost::RunTimeline& measured);

 private:
  enum class Form : std::uint8_t { kTable, kBits, kJson };

  bool measures_noise() const { return job_.program.step.noise; }
  std::string bold(const std::string& text) const;
  std::string dim(const std::string& text) const;
  void row(const char* label, const std::string& text) const;
  void print_titles();
  void print_step(std::int64_t step, const train::StepReport& report);
  void print_bar(std::int64_t step, const train::StepReport& report);
  void clear_bar() const;
  void print_ending(train::Ending ending) const;
  std::string compared(const train::StepReport& report);
  ExitCode diverged() const;
  Json json(train::Ending ending) const;

  struct Told {
    train::StepReport report;
    std::optional<std::uint64_t> digest;
  };
  struct Evaluated {
    std::int64_t step;
    train::EvalReport report;
  };

  const train::Job& job_;
  const train::Prediction prediction_;                     // of a step of the whole batch
  std::map<std::int64_t, train::Prediction> predictions_;  // by sequences
  std::optional<train::Prediction> evaluation_;            // of one, when there are any
  const std::string ranks_, data_;
  const TrainWishes& wishes_;
  Output& output_;
  const Form form_;
  bool has_titles_ = false;
  std::int64_t first_ = 0;  // step of reports_[0]; those that were done before
  std::string saved_;       // the last checkpoint
  std::vector<Told> reports_;
  std::vector<Evaluated> evaluations_;
  metrics::TimeLeft left_;
  RealClock clock_;
  TimePoint drawn_ = {Seconds{-1}};  // the bar
  Seconds time_;                     // since the last line, as are those below
  std::int64_t tokens_ = 0, steps_ = 0;
};

}  // namespace lockstep::cli
#endif
