#include "cli/train_rank.h"

#if LOCKSTEP_WITH_TORCH
#include <utility>

#include "cli/help.h"
#include "cli/ranks.h"
#include "cli/train_metrics.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/data/step_samples.h"
#include "lockstep/train/checkpoint.h"
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
    if (Result<void> begun = begin(); !begun.ok()) {
      end.refused = begun.error();
      return end;
    }
    expect(done_.step);
    end.ending = train::train(
        session_, done_.step, steps(), stop_on_signals(),
        [&](std::int64_t step, const train::StepReport& report) { on_step(step, report); });
    if (saver_ && end.ending != train::Ending::kDiverged) save_last();
    if (metrics_) tell_ending(end.ending);
    if (wishes_.files.any())
      end.measured = record_.collect(job_, world_, "", Deadline::after(kOpDeadline));
    return end;
  }

 private:
  std::int64_t steps() const { return job_.spec.train.steps; }

  Result<void> begin() {
    if (wishes_.start != Start::kNew) {
      Result<train::Loaded> loaded =
          wishes_.start == Start::kContinue
              ? train::load(job_, session_, world_, "load", wishes_.from, data_.digest, kOpDeadline)
              : train::load_weights(job_, session_, world_, "load", wishes_.from, kOpDeadline);
      if (!loaded.ok()) return loaded.error();
      if (wishes_.start == Start::kContinue) done_ = loaded->progress;
      if (log_ != nullptr) log_->loaded(*loaded);
    }
    if (!wishes_.save.empty())
      saver_.emplace(job_, session_, world_, "save",
                     train::SaveSettings{.folder = wishes_.save,
                                         .keep = wishes_.keep,
                                         .first_step = done_.step,
                                         .data = data_.digest,
                                         .lockstep = version()},
                     kOpDeadline);
    return open_metrics();
  }

  Result<void> open_metrics() {
    if (log_ == nullptr || wishes_.metrics.empty()) return {};
    Result<TrainMetrics> opened = wishes_.resumes
                                      ? TrainMetrics::resume(wishes_.metrics, job_, done_.step)
                                      : TrainMetrics::begin(wishes_.metrics, job_, done_.step);
    if (!opened.ok()) throw IoError(opened.error());  // only this rank knows
    metrics_.emplace(*std::move(opened));
    return {};
  }

  // The samples that this rank reads in a step lie side by side.
  void expect(std::int64_t step) const {
    if (step >= steps()) return;
    const plan::StepBatch batch = job_.batch(step);
    const std::int64_t rows = job_.spec.batch.microbatch,
                       own = batch.sequences / job_.spec.layout.degrees.dp;
    const data::StepSamples dealt{batch.first, own / rows, rows};
    data_.training->expect(dealt.sample(session_.place().data_index(), 0, 0), own);
  }

  void on_step(std::int64_t step, const train::StepReport& report) {
    const plan::StepBatch batch = job_.batch(step);
    done_ = {step + 1, batch.first + batch.sequences, done_.tokens + report.tokens};
    expect(step + 1);
    if (wishes_.files.any() && report.sequences == job_.spec.batch.global_batch)
      record_.add(step, session_);
    std::optional<std::uint64_t> digest;
    if (wishes_.oracle) digest = session_.state_digest();
    if (log_ != nullptr) log_->step(step, report, digest);
    if (metrics_) metrics_->step(step, report);
    const std::int64_t interval = job_.spec.train.eval_interval;
    if (interval > 0 && (done_.step % interval == 0 || done_.step == steps())) evaluate(step);
    if (saver_ && wishes_.save_interval > 0 && done_.step % wishes_.save_interval == 0) save();
  }

  void evaluate(std::int64_t step) {
    const train::EvalReport report = session_.evaluate(*data_.held_out);
    if (log_ != nullptr) log_->evaluation(step, report);
    if (metrics_) metrics_->evaluation(step, report);
  }

  void save() {
    saver_->save(done_);
    saved_ = done_.step;
    if (metrics_)
      metrics_->event("save", done_.step,
                      Json::object({{"checkpoint", checkpoint::folder_name(done_.step)},
                                    {"paused_seconds", saver_->paused().value}}));
  }

  // Where the run ends, whether it is due or not.
  void save_last() {
    if (saved_ != done_.step) save();
    saver_->finish();
    if (log_ != nullptr) log_->saved(done_.step);
  }

  void tell_ending(train::Ending ending) {
    metrics_->event(ending == train::Ending::kFinished  ? "end"
                    : ending == train::Ending::kStopped ? "stop"
                                                        : "diverge",
                    done_.step);
  }

  const train::Job& job_;
  const TrainData& data_;
  const TrainWishes& wishes_;
  comm::World& world_;
  TrainLog* const log_;  // absent: another rank tells
  train::Session session_;
  train::StepRecord record_;
  std::optional<train::Saver> saver_;
  std::optional<TrainMetrics> metrics_;
  train::Progress done_;
  std::int64_t saved_ = -1;  // step of the last checkpoint that this run made
};

}  // namespace

RankEnding train_rank(const train::Job& job, const TrainData& data, const TrainWishes& wishes,
                      comm::World& world, TrainLog* log) {
  return RankRun(job, data, wishes, world, log).run();
}

}  // namespace lockstep::cli
#endif
