// The files in which a run tells what it measures: metrics.jsonl, and event files for TensorBoard
// that hold the same numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/json.h"
#include "lockstep/metrics/event_file.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

std::string metrics_path(const std::string& directory);

// For rank 0. Opens its files when the run begins, and throws IoError where it cannot. Lines that
// cannot be written afterwards are lost and told; they never end a run.
class RunMetrics final : public RunObserver {
 public:
  struct Options {
    std::string directory;
    // Of a run that continues: goes on in its metrics.jsonl, and drops lines of later steps.
    bool resumes = false;
    // What an earlier run left that ended before its first checkpoint becomes metrics-1.jsonl, or
    // the next number that is free.
    bool may_set_aside = false;
    std::string version = {};  // of the program
    // `lost` lines of metrics.jsonl so far.
    std::function<void(const Error& error, std::int64_t lost)> on_trouble = {};
  };
  // The job must outlive it.
  RunMetrics(const Job& job, Options options) : job_(job), options_(std::move(options)) {}

  void begins(const Progress& done, bool continues) override;
  void step(std::int64_t step, const StepReport& report,
            std::optional<std::uint64_t> digest) override;
  void rolled_back(const Error& why, const Loaded& to) override;
  void evaluation(std::int64_t step, const EvalReport& report) override;
  void saves(const Progress& done, Seconds paused) override;
  void saved(const SaveEnding& ending) override;
  void ended(Ending ending, const Progress& done) override;

 private:
  Json head(const char* event, std::int64_t steps) const;
  void event(const std::string& name, std::int64_t steps, const Json& more = Json::object());
  void add(const Json& line);
  void add(std::int64_t step, std::span<const metrics::Scalar> scalars);
  void add_routers(const StepReport& report, Json& line,
                   std::vector<metrics::Scalar>& scalars) const;
  void check(const Result<void>& written);

  const Job& job_;
  const Options options_;
  std::optional<metrics::MetricsFile> file_;
  std::optional<metrics::EventFile> events_;
  std::int64_t lost_ = 0;
};

}  // namespace lockstep::train
