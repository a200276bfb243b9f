// The files in which a run tells what it measures: metrics.jsonl, and event files for TensorBoard that
// hold the same numbers.
#pragma once

#if LOCKSTEP_WITH_TORCH
#include <cstdint>
#include <string>

#include "lockstep/base/result.h"
#include "lockstep/metrics/event_file.h"
#include "lockstep/metrics/metrics_file.h"
#include "lockstep/train/job.h"
#include "lockstep/train/session.h"

namespace lockstep::cli {

// Belongs to the thread of rank 0. Throws WorldError when a file can not be written any more: a run
// that says nothing of itself is not worth its time.
class TrainMetrics {
 public:
  // Of a run that has made `steps` steps. It begins in this directory, or `resumes` there: then lines
  // of later steps are dropped.
  static Result<TrainMetrics> begin(const std::string& directory, const train::Job& job,
                                    std::int64_t steps);
  static Result<TrainMetrics> resume(const std::string& directory, const train::Job& job,
                                     std::int64_t steps);

  // Steps are numbers from 0, as in trainer.h.
  void step(std::int64_t step, const train::StepReport& report);
  void evaluation(std::int64_t step, const train::EvalReport& report);
  // Another line, after `steps` steps.
  void event(const std::string& name, std::int64_t steps, const Json& more = Json::object());

 private:
  static Result<TrainMetrics> open(Result<metrics::MetricsFile> file, const std::string& directory,
                                   const train::Job& job, Json head);
  TrainMetrics(const train::Job& job, metrics::MetricsFile file, metrics::EventFile events)
      : job_(&job), file_(std::move(file)), events_(std::move(events)) {}
  void add(const Json& line);

  const train::Job* job_;
  metrics::MetricsFile file_;
  metrics::EventFile events_;
};

// Refuses a directory that can not be made, and for a run that begins one that has metrics.
Result<void> check_metrics(const std::string& directory, bool begins);

}  // namespace lockstep::cli
#endif
