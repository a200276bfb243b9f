// The training of one rank from its first step to its last: loading, steps, evaluations, saves.
// What happens is told to observers; lockstep train is one program around this, a user's own is
// another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/cost/measured/run_timeline.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/session.h"
#include "lockstep/train/whole_weights.h"

namespace lockstep::train {

enum class Ending : std::uint8_t {
  kFinished,
  kStopped,   // some rank was asked to; all ranks ended after the same step
  kDiverged,  // loss or gradient norm was not finite, as often as the job allows
  kCorrupt,   // a check found wrong state, and there is no checked one to go back to
};

// Where the job skips steps that are not finite: how many in a row it may skip. A few are bad
// samples or a spike; ten are a model that is lost.
inline constexpr int kMostSkipped = 10;
// How often in a row a run goes back to a checkpoint before it has come further than before. What
// is wrong still then is no cosmic ray.
inline constexpr int kMostRollbacks = 3;

// Where the state of the first step comes from.
enum class Start : std::uint8_t {
  kNew,     // initial weights
  kResume,  // the newest checkpoint of `save` that is whole; without steps left nothing is touched
  kResumeOrNew,  // the same, or initial weights where there is no checkpoint
  kContinue,     // the checkpoint `from`, with all that belongs to its run
  kWeights,      // the weights of the checkpoint `from`; everything else is new
};

struct RunOptions {
  std::string save = {};           // directory of checkpoints; empty: none are made
  std::int64_t save_interval = 0;  // steps; 0: only where the run ends
  std::int64_t keep = 2;           // newest checkpoints; 0: all
  // Copies of the state in memory that outlives ranks: a folder of checkpoints, which a run that
  // resumes prefers to those of `save` that are not newer. Empty: none are made.
  std::string snapshots = {};
  std::int64_t snapshot_interval = 0;  // steps; REQUIRES: at least 1 where there is a folder
  Start start = Start::kNew;
  std::string from = {};                  // a checkpoint, or a directory of them
  std::vector<std::string> changed = {};  // settings that may be others than its own (load)
  bool digests = false;                   // of the state, after every step
  std::int64_t sample_interval = 0;  // steps between two calls of RunObserver::weights; 0: none
  std::size_t timelines = 0;         // of so many last steps of a whole batch, collected at the end
  std::string version = {};          // of the program, as checkpoints tell it
  std::optional<BitFlip> flip = {};  // for tests

  bool resumes() const { return start == Start::kResume || start == Start::kResumeOrNew; }
};

// Not owned.
struct RunData {
  const data::TokenSource* training = nullptr;
  const data::TokenSource* validation = nullptr;  // absent: the run does not evaluate
  std::string digest = {};                        // differs where samples do
};

// Told on the thread of the rank. Steps are numbers from 0. What an observer throws ends the rank.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Before the first step: what it begins with, where that is a checkpoint; damaged ones that were
  // renamed; how far the run has come, and whether it `continues` one.
  virtual void loaded(const Loaded& /*loaded*/) {}
  virtual void set_aside(const std::string& /*path*/) {}
  virtual void begins(const Progress& /*done*/, bool /*continues*/) {}
  // After a step. `digest` where the options ask for it.
  virtual void step(std::int64_t /*step*/, const StepReport& /*report*/,
                    std::optional<std::uint64_t> /*digest*/) {}
  // A check found `why`, and the run resumes from the checkpoint `to`.
  virtual void rolled_back(const Error& /*why*/, const Loaded& /*to*/) {}
  virtual void evaluation(std::int64_t /*step*/, const EvalReport& /*report*/) {}
  // On rank 0 all weights, every sample_interval steps and after the last; the others wait.
  virtual void weights(std::int64_t /*step*/, WholeWeights& /*weights*/) {}
  // A save has begun, for which training paused so long; and one has ended, well or not.
  virtual void saves(const Progress& /*done*/, Seconds /*paused*/) {}
  virtual void saved(const SaveEnding& /*ending*/) {}
  virtual void snapshot_failed(std::int64_t /*step*/, const Error& /*why*/) {}
  virtual void ended(Ending /*ending*/, const Progress& /*done*/) {}
};

struct RunEnding {
  Ending ending = Ending::kFinished;
  cost::RunTimeline measured = {};    // of all ranks, when timelines are collected
  std::optional<Error> refused = {};  // why nothing was trained; the same on all ranks
  std::optional<Error> corrupt = {};  // what a check found, where the ending is kCorrupt
  std::optional<Error> unsaved = {};  // why the last checkpoint is missing; the same on all ranks
};

// Called by all ranks with the same options and data. Every rank gets the same ending after the
// same step. `stop` may be set at any time, also by a signal handler. A disk that fails does not
// end a run. Throws WorldError.
RunEnding train(const Job& job, comm::World& world, const RunData& data, const RunOptions& options,
                const std::atomic<bool>& stop, std::span<RunObserver* const> observers = {});

// The steps alone, [first, last). Calls `on_step` after each.
Ending train_steps(Session& session, std::int64_t first, std::int64_t last,
                   const std::atomic<bool>& stop,
                   const std::function<void(std::int64_t step, const StepReport& report)>& on_step);

}  // namespace lockstep::train
