#include "cli/train_rank.h"

#if LOCKSTEP_WITH_TORCH
#include <utility>

#include "cli/ranks.h"
#include "cli/train_metrics.h"
#include "lockstep/train/step_record.h"

namespace lockstep::cli {
namespace {

constexpr Seconds kOpDeadline = {600};
constexpr std::size_t kStepsKept = 5;  // as help says

class RankRun {
 public:
  RankRun(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
          comm::World& world, TrainLog* log)
      : job_(job),
        data_(data),
        wishes_(wishes),
        world_(world),
        log_(log),
        session_(job, world, "", *data.training, kOpDeadline),
        record_(kStepsKept) {}

  RankEnding run() {
    RankEnding end;
    if (const Result<void> opened = open_metrics(); !opened.ok()) throw IoError(opened.error());
    end.ending = train::train(
        session_, 0, steps(), stop_on_signals(),
        [&](std::int64_t step, const train::StepReport& report) { on_step(step, report); });
    if (metrics_) tell_ending(end.ending);
    if (wishes_.files.any())
      end.measured = record_.collect(job_, world_, "", Deadline::after(kOpDeadline));
    return end;
  }

 private:
  std::int64_t steps() const { return job_.spec.train.steps; }

  Result<void> open_metrics() {
    if (log_ == nullptr || wishes_.metrics.empty()) return {};
    Result<TrainMetrics> opened = TrainMetrics::open(wishes_.metrics, job_, std::nullopt);
    if (!opened.ok()) return opened.error();
    metrics_.emplace(*std::move(opened));
    return {};
  }

  void on_step(std::int64_t step, const train::StepReport& report) {
    done_ = step + 1;
    if (wishes_.files.any() && report.sequences == job_.spec.batch.global_batch)
      record_.add(step, session_);
    std::optional<std::uint64_t> digest;
    if (wishes_.oracle) digest = session_.state_digest();
    if (log_ != nullptr) log_->step(step, report, digest);
    if (metrics_) metrics_->step(step, report);
    const std::int64_t interval = job_.spec.train.eval_interval;
    if (interval > 0 && (done_ % interval == 0 || done_ == steps())) evaluate(step);
  }

  void evaluate(std::int64_t step) {
    const train::EvalReport report = session_.evaluate(*data_.held_out);
    if (log_ != nullptr) log_->evaluation(step, report);
    if (metrics_) metrics_->evaluation(step, report);
  }

  void tell_ending(train::Ending ending) {
    metrics_->event(ending == train::Ending::kFinished  ? "end"
                    : ending == train::Ending::kStopped ? "stop"
                                                        : "diverge",
                    done_);
  }

  const train::Job& job_;
  const TrainData& data_;
  const TrainWishes& wishes_;
  comm::World& world_;
  TrainLog* const log_;  // absent: another rank tells
  train::Session session_;
  train::StepRecord record_;
  std::optional<TrainMetrics> metrics_;
  std::int64_t done_ = 0;  // steps
};

}  // namespace

RankEnding train_rank(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
                      comm::World& world, TrainLog* log) {
  return RankRun(job, data, wishes, world, log).run();
}

}  // namespace lockstep::cli
#endif
