#include "lockstep/train/trainer.h"

#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/data/token_source.h"
#include "lockstep/train/step_record.h"

namespace lockstep::train {
namespace {

// Until `on_step` returns false.
Ending run_steps(Session& session, std::int64_t first, std::int64_t last,
                 const std::atomic<bool>& stop,
                 const std::function<bool(std::int64_t step, const StepReport& report)>& on_step) {
  const bool skips = session.job().spec.train.on_nonfinite == spec::OnNonfinite::kSkip;
  int skipped = 0;
  for (std::int64_t step = first; step < last; ++step) {
    if (stop) session.workspace().ask_to_stop();
    const StepReport report = session.step(step);
    if (!on_step(step, report) || report.corrupt) return Ending::kCorrupt;
    skipped = report.updated ? 0 : skipped + 1;
    if (skipped > (skips ? kMostSkipped : 0)) return Ending::kDiverged;
    if (report.stop) return Ending::kStopped;
  }
  return Ending::kFinished;
}

class Run {
 public:
  Run(const Job& job, comm::World& world, const RunData& data, const RunOptions& options,
      std::span<RunObserver* const> observers)
      : job_(job),
        world_(world),
        data_(data),
        options_(options),
        observers_(observers),
        session_(job, world, "", *data.training, job.spec.train.op_deadline, {},
                 options.start == Start::kNew ? InitialState::kDrawn : InitialState::kLoaded),
        record_(options.timelines) {
    LS_CHECK(data.validation != nullptr || job.spec.train.eval_interval == 0,
             "a run that evaluates needs validation data");
    LS_CHECK(!options.resumes() || !options.save.empty(), "a run resumes where it saves");
  }

  // Sets `has_stepped` after the first step.
  RunEnding run(const std::atomic<bool>& stop, bool& has_stepped) {
    RunEnding end;
    if (Result<void> begun = begin(); !begun.ok()) {
      end.refused = begun.error();
      return end;
    }
    if (is_done()) return end;
    if (options_.sample_interval > 0) weights_.emplace(job_, session_, world_, op_deadline());
    if (options_.flip) session_.plan(*options_.flip);
    do {
      expect(done_.step);
      corrupt_.reset();
      end.ending = run_steps(session_, done_.step, steps(), stop,
                             [&](std::int64_t step, const StepReport& report) {
                               has_stepped = true;
                               on_step(step, report);
                               return !corrupt_;
                             });
      finish_state(end);
    } while (end.ending == Ending::kCorrupt && roll_back());
    end.corrupt = corrupt_;
    tell_saved();
    tell([&](RunObserver& one) { one.ended(end.ending, done_); });
    if (options_.timelines > 0)
      end.measured = record_.collect(job_, world_, "", Deadline::after(op_deadline()));
    return end;
  }

 private:
  std::int64_t steps() const { return job_.spec.train.steps; }
  Seconds op_deadline() const { return job_.spec.train.op_deadline; }
  bool is_done() const { return options_.resumes() && done_.step >= steps(); }

  template <class What>
  void tell(const What& what) {
    for (RunObserver* const one : observers_) what(*one);
  }

  // Saves it where the steps have ended well.
  void finish_state(RunEnding& end) {
    if (snapshots_) snapshots_->finish();
    if (!saver_) return;
    if (end.ending == Ending::kDiverged || end.ending == Ending::kCorrupt)
      saver_->finish();  // the last good one
    else
      end.unsaved = save_last();
    if (corrupt_) end = {.ending = Ending::kCorrupt};
  }

  // To the newest checkpoint whose state was checked; false where there is none, or this was done
  // often enough.
  bool roll_back() {
    tell_saved();
    rollbacks_ = done_.step > corrupt_step_ ? 1 : rollbacks_ + 1;
    corrupt_step_ = std::max(corrupt_step_, done_.step);
    if (!saver_ || rollbacks_ > kMostRollbacks) return false;
    const Result<Loaded> loaded =
        load(job_, session_, world_, join_parts("rollback ", ++all_rollbacks_, " "), options_.save,
             data_.digest, op_deadline(), options_.changed, options_.snapshots, Trust::kChecked);
    if (!loaded.ok()) return false;
    done_ = loaded->progress;
    saved_ = -1;
    begin_saves(loaded->damaged);
    tell([&](RunObserver& one) { one.rolled_back(*corrupt_, *loaded); });
    return true;
  }

  Result<void> begin() {
    if (!options_.save.empty())  // first of all, because it locks the folder
      saver_.emplace(job_, session_, world_, "save",
                     SaveSettings{.folder = options_.save,
                                  .keep = options_.keep,
                                  .data = data_.digest,
                                  .lockstep = options_.version},
                     op_deadline());
    if (!options_.snapshots.empty())
      snapshots_.emplace(job_, session_, world_, "snapshot",
                         SaveSettings{.folder = options_.snapshots,
                                      .data = data_.digest,
                                      .lockstep = options_.version,
                                      .discards = true},
                         op_deadline());
    std::vector<std::string> damaged;
    bool continues = false;
    if (options_.start != Start::kNew) {
      Result<Loaded> loaded = load_start();
      const bool begins = options_.start == Start::kResumeOrNew && !loaded.ok() &&
                          loaded.error().code == Code::kNoCheckpoint;
      if (!loaded.ok() && !begins) return loaded.error();
      if (begins) session_.workspace().begin_anew();
      continues = options_.start != Start::kWeights && !begins;
      if (continues) done_ = loaded->progress;
      if (!begins) tell([&](RunObserver& one) { one.loaded(*loaded); });
      if (options_.resumes() && !begins) damaged = std::move(loaded->damaged);
    }
    if (is_done()) return {};
    begin_saves(damaged);
    tell([&](RunObserver& one) { one.begins(done_, continues); });
    return {};
  }

  void begin_saves(const std::vector<std::string>& damaged) {
    if (saver_)
      for (const std::string& path : saver_->begin_at(done_.step, damaged))
        tell([&](RunObserver& one) { one.set_aside(path); });
    if (snapshots_) snapshots_->begin_at(done_.step, {});
  }

  Result<Loaded> load_start() {
    const std::string& from = options_.resumes() ? options_.save : options_.from;
    return options_.start == Start::kWeights
               ? load_weights(job_, session_, world_, "load", from, op_deadline())
               : load(job_, session_, world_, "load", from, data_.digest, op_deadline(),
                      options_.changed, options_.resumes() ? options_.snapshots : "");
  }

  // The samples that this rank reads in a step lie side by side.
  void expect(std::int64_t step) const {
    if (step >= steps()) return;
    const spec::StepBatch batch = job_.batch(step);
    const std::int64_t rows = job_.spec.batch.microbatch,
                       own = batch.sequences / job_.spec.layout.degrees.dp;
    const data::StepSamples dealt{batch.first, own / rows, rows};
    data_.training->expect(dealt.sample(session_.place().sample_index(), 0, 0), own);
  }

  void on_step(std::int64_t step, const StepReport& report) {
    corrupt_ = report.corrupt;
    if (corrupt_) return;
    const spec::StepBatch batch = job_.batch(step);
    done_ = {step + 1, batch.first + batch.sequences, done_.tokens + report.tokens};
    expect(step + 1);
    if (options_.timelines > 0 && report.sequences == job_.spec.batch.global_batch)
      record_.add(step, session_);
    std::optional<std::uint64_t> digest;
    if (options_.digests) digest = session_.state_digest();
    tell([&](RunObserver& one) { one.step(step, report, digest); });
    const std::int64_t interval = job_.spec.train.eval_interval;
    if (interval > 0 && (done_.step % interval == 0 || done_.step == steps())) evaluate(step);
    if (weights_ && (done_.step % options_.sample_interval == 0 || done_.step == steps()))
      show_weights(step);
    if (saver_ && options_.save_interval > 0 && done_.step % options_.save_interval == 0) save();
    if (snapshots_ && done_.step % options_.snapshot_interval == 0) snapshot();
    tell_saved();
  }

  void show_weights(std::int64_t step) {
    weights_->gather();
    if (world_.rank().value == 0) tell([&](RunObserver& one) { one.weights(step, *weights_); });
    weights_->forget();
  }

  void evaluate(std::int64_t step) {
    const EvalReport report = session_.evaluate(*data_.validation);
    tell([&](RunObserver& one) { one.evaluation(step, report); });
  }

  // Not what a check finds wrong.
  bool may_save() {
    if (session_.checks() && !corrupt_) corrupt_ = session_.check_state();
    return !corrupt_;
  }

  void snapshot() {
    if (may_save()) snapshots_->save(done_, session_.checks());
  }

  void save() {
    if (!may_save()) return;
    saver_->save(done_, session_.checks());
    saved_ = done_.step;
    tell([&](RunObserver& one) { one.saves(done_, saver_->paused()); });
  }

  void tell_saved() {
    while (const auto ending = saver_ ? saver_->ended() : std::nullopt)
      tell([&](RunObserver& one) { one.saved(*ending); });
    while (const auto ending = snapshots_ ? snapshots_->ended() : std::nullopt)
      if (!ending->path.ok())
        tell([&](RunObserver& one) { one.snapshot_failed(ending->step, ending->path.error()); });
  }

  // Where the run ends, whether it is due or not; what failed before is tried once more.
  std::optional<Error> save_last() {
    std::optional<SaveEnding> last;
    if (saved_ == done_.step) last = saver_->finish();
    if (!last || !last->path.ok()) {
      save();
      if (corrupt_) return std::nullopt;
      last = saver_->finish();
    }
    if (last->path.ok()) return std::nullopt;
    Error error = last->path.error();
    error.message = join_parts("step ", done_.step, " is not saved: ", error.message);
    return error;
  }

  const Job& job_;
  comm::World& world_;
  const RunData& data_;
  const RunOptions& options_;
  const std::span<RunObserver* const> observers_;
  Session session_;
  StepRecord record_;
  std::optional<Saver> saver_, snapshots_;
  std::optional<WholeWeights> weights_;  // where some are to be shown
  Progress done_;
  std::optional<Error> corrupt_;    // what a check found since the last rollback
  std::int64_t corrupt_step_ = -1;  // the furthest that a run came that had to go back
  int rollbacks_ = 0, all_rollbacks_ = 0;
  std::int64_t saved_ = -1;  // step of the last save that this run began
};

}  // namespace

RunEnding train(const Job& job, comm::World& world, const RunData& data, const RunOptions& options,
                const std::atomic<bool>& stop, std::span<RunObserver* const> observers) {
  bool has_stepped = false;
  try {
    return Run(job, world, data, options, observers).run(stop, has_stepped);
  } catch (const comm::CommError&) {
    // Ranks that are asked to stop while they draw weights end at once, each on its own: to one
    // that was asked too and had drawn, that is not another's death.
    if (has_stepped || !stop) throw;
    throw WorldError({Code::kInterrupted, "asked to stop before the first step"});
  }
}

Ending train_steps(
    Session& session, std::int64_t first, std::int64_t last, const std::atomic<bool>& stop,
    const std::function<void(std::int64_t step, const StepReport& report)>& on_step) {
  return run_steps(session, first, last, stop, [&](std::int64_t step, const StepReport& report) {
    on_step(step, report);
    return true;
  });
}

}  // namespace lockstep::train
