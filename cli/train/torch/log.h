// What rank 0 of `lockstep train` tells while it runs, and at the end: a table with a progress bar
// below it on a terminal, bits with --oracle, and nothing until the end with --json.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/simulate/request.h"
#include "cli/train/torch/sample_request.h"
#include "cli/verb.h"
#include "lockstep/base/clock.h"
#include "lockstep/cost/measured/run_timeline.h"
#include "lockstep/metrics/progress.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {

// Times that a run leaves behind: a trace in which prediction and run stand one above the other,
// and a timeline that `lockstep simulate --against` reads.
struct RunFiles {
  std::string trace, timeline;                       // names; empty: not wanted
  std::optional<cost::CalibrationFile> calibration;  // of the same run, to predict seconds with
  bool any() const { return !trace.empty() || !timeline.empty(); }
};

// Besides what becomes of the run: what is told of it.
struct TrainOptions : train::RunOptions {
  std::int64_t every = 1;  // steps between two lines
  bool oracle = false;     // print bits and a digest of the state, and nothing else
  RunFiles files = {};
  std::optional<SampleRequest> sample = {};
  std::string samples = {};        // what is told of texts to come; empty: there are none
  std::string metrics = {};        // directory of metrics.jsonl and event files; empty: none
  config::Document document = {};  // the run file as it is in force
};

ExitCode exit_code_of(train::Ending ending);

// Belongs to the thread of rank 0. The job must outlive it. Steps are numbers from 0.
class TrainLog final : public train::RunObserver {
 public:
  // `ranks`: "4 threads"; `data`: what is trained on; `now`: on a clock that begins with the log.
  TrainLog(
      const train::Job& job, const std::string& ranks, const std::string& data,
      const TrainOptions& options, Output& output,
      std::function<TimePoint()> now = [clock = RealClock()] { return clock.now(); });

  // Before the first step.
  void begin();
  // So many more initial weights are there. Any thread.
  void drawn(std::int64_t elements);
  void loaded(const train::Loaded& loaded) override;
  void set_aside(const std::string& path) override;
  void snapshot_failed(std::int64_t step, const Error& why) override;
  void saved(const train::SaveEnding& ending) override;
  // What goes wrong without ending the run, said at once and then once a minute for each `kind`.
  void trouble(const std::string& kind, const std::string& text);
  // After a save that failed: the last good checkpoint, and the command that goes on from it.
  std::string way_back() const;
  void step(std::int64_t step, const train::StepReport& report,
            std::optional<std::uint64_t> digest) override;
  void rolled_back(const Error& why, const train::Loaded& to) override;
  void evaluation(std::int64_t step, const train::EvalReport& report) override;
  // A text that the model made behind `prompt`.
  void sample(std::int64_t step, const std::string& prompt, const std::string& text);
  // Writes the files that were wished for, too.
  ExitCode conclude(train::Ending ending, const cost::RunTimeline& measured);

 private:
  enum class Form : std::uint8_t { kTable, kBits, kJson };

  bool measures_noise() const { return job_.program.step.noise; }
  void row(const char* label, const std::string& text) const;
  void tell_predictions() const;
  void print_titles();
  void print_step(std::int64_t step, const train::StepReport& report);
  void print_bar(std::int64_t step, const train::StepReport& report);
  void clear_bar() const;
  void print_ending(train::Ending ending) const;
  std::string line(std::vector<std::string> cells, const std::string& noise) const;
  void remark(const std::string& text) const;
  train::Prediction prediction_of(const train::StepReport& report);
  const train::Prediction& prediction(std::int64_t sequences);
  Error diverged() const;
  Json json(train::Ending ending) const;

  struct StepLogEntry {
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
  const TrainOptions& options_;
  Output& output_;
  const Form form_;
  std::mutex mutex_;  // of what draws the bar while weights are drawn
  std::int64_t elements_ = 0;
  bool has_titles_ = false;
  std::int64_t first_ = 0;                     // step of reports_[0]; those that were done before
  std::string saved_;                          // the last checkpoint
  std::map<std::string, TimePoint> troubles_;  // when each kind was told last
  std::int64_t done_ = 0, all_tokens_ = 0, skipped_ = 0;  // of this run's steps
  Seconds all_time_;
  double first_loss_ = 0, last_loss_ = 0;
  std::string off_;  // what of the last step was not as predicted
  // For JSON, which is written at the end; else a run takes no memory for the steps behind it.
  std::vector<StepLogEntry> reports_;
  std::vector<Evaluated> evaluations_;
  metrics::TimeLeft left_;
  const std::function<TimePoint()> now_;
  TimePoint drawn_ = {Seconds{-1}},
            bar_ = {Seconds{-1}};  // when weights and the bar were told last
  Seconds time_;                   // since the last line, as are those below
  std::int64_t tokens_ = 0, steps_ = 0;
};

}  // namespace lockstep::cli
