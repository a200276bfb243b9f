// One rank of a running job: its groups, its memory, its executor.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/token_source.h"
#include "lockstep/exec/executor.h"
#include "lockstep/runtime/tensor_workspace.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/train/job.h"
#include "lockstep/train/noise_scale.h"
#include "lockstep/train/state_check.h"

namespace lockstep::train {

// Of the validation samples, with the parameters that the last step left.
struct EvalReport {
  double loss = 0;              // mean over valid tokens
  std::int64_t tokens = 0;      // valid ones
  Seconds time;                 // of this rank
  std::int64_t peak_bytes = 0;  // tensor memory of this rank
  Bytes sent;                   // by this rank
};

// Of the samples of a step, and what it did with them.
struct StepReport : EvalReport {
  std::int64_t sequences = 0;    // samples of the step, over all ranks
  double grad_norm = 0;          // before clipping
  bool stop = false;             // some rank asked to stop; all of them see it at the same step
  bool updated = true;           // false: no rank changed anything, for one of the next two reasons
  bool is_finite = true;         // loss and norm are
  std::optional<Error> corrupt;  // what checks found; the same on all ranks (LS0703)
  Seconds checks;                // part of the time that checks took
  // Where the noise scale is measured:
  MeanGradient first;                 // of the step's first microbatch, before clipping
  std::optional<double> noise_scale;  // in tokens, averaged over steps; absent: not to be told yet
  // Of a mixture of experts: losses of its routers, with their coefficients and beside `loss`, and
  // the tokens that each expert met, all experts of one block after those of another.
  double aux_loss = 0, z_loss = 0;
  std::vector<std::int64_t> expert_tokens;
  std::vector<float> router_bias;  // behind the step, as expert_tokens; empty: no selection biases
  model::RowsMetBy rows_met;       // by this rank's experts, where ranks share them
};

// Makes what the executor sees in place of a rank's workspace, to watch what passes between them or
// to falsify it. The inner one outlives it.
using WorkspaceWrap =
    std::function<std::unique_ptr<exec::Workspace>(exec::Workspace& inner, Rank rank)>;

// Where the state of a session comes from.
enum class InitialState : std::uint8_t {
  kDrawn,
  kLoaded,  // by a checkpoint (checkpoint.h): zeros until then, nothing is drawn
};

// What is sent along this axis goes on beside steps, and is in no report of theirs.
inline constexpr const char* kCheckpointAxis = "checkpoint";

// Belongs to the rank's thread. Job, world and source must outlive it.
class Session {
 public:
  // Connects the rank's groups and checks that all ranks hold the same job. Throws WorldError.
  // `label` must differ among sessions of one world.
  Session(const Job& job, comm::World& world, const std::string& label,
          const data::TokenSource& source, Seconds op_deadline, const WorkspaceWrap& wrap = {},
          InitialState initial = InitialState::kDrawn);

  // Trains step number `step`, from 0: the number decides samples and learning rate. When the world
  // fails, the CommError says where every rank stands and why.
  StepReport step(std::int64_t step, const exec::Executor::Observer& observer = {});

  // Looks at the first spec.train.eval_samples of `validation`. Changes nothing of the state. All
  // ranks call it, and get the same loss. REQUIRES: a job that evaluates.
  EvalReport evaluate(const data::TokenSource& validation,
                      const exec::Executor::Observer& observer = {});

  // Of all parameters and moments of the job, and the number of updates (state_digest.cc). All
  // ranks call it, and get the same.
  std::uint64_t state_digest();

  // What is wrong with the state that the last step left, as far as replicas show it; the same on
  // all ranks, which all call it. REQUIRES: a job that checks.
  std::optional<Error> check_state();
  bool checks() const { return check_ != nullptr; }
  // For tests. REQUIRES: a job that checks.
  void plan(const BitFlip& flip);

  const Job& job() const { return job_; }
  runtime::TensorWorkspace& workspace() { return *workspace_; }
  NoiseScale* noise_scale() { return noise_scale_ ? &*noise_scale_ : nullptr; }  // null: unmeasured
  const tensor::DeviceMemory& memory() const { return memory_; }
  // Of the last step, as the executor has them.
  const program::Timeline& timeline() const { return last_->timeline(); }
  const program::Timeline& lanes() const { return last_->lanes(); }
  SteadyPoint begun() const { return last_->begun(); }
  Coord coord() const { return place_.coord; }
  const runtime::Place& place() const { return place_; }
  std::vector<int> own_segments() const;  // those that this rank holds, unit by unit

 private:
  // The program of a step of some size, and what runs it.
  struct Sized {
    const program::Program& program;
    exec::Executor& executor;
  };
  Sized sized(std::int64_t sequences);
  std::unique_ptr<exec::Executor> make_executor(const program::Program& program);
  void end_check(const exec::StepSums& sums, StepReport& report);
  void measure_noise(const exec::StepSums& sums, StepReport& report);
  void measure_routers(const exec::StepSums& sums, StepReport& report) const;
  exec::StepSums run(const Sized& work, const exec::Executor::Observer& observer,
                     EvalReport& report);

  const Job& job_;
  comm::World& world_;
  std::int64_t step_ = 0;          // in progress
  tensor::MemoryAccount account_;  // of the host
  tensor::DeviceMemory memory_;
  const runtime::Place place_;
  std::unique_ptr<exec::Groups> groups_;
  std::unique_ptr<runtime::TensorWorkspace> workspace_;
  std::unique_ptr<exec::Workspace> wrapped_;  // around it; absent: nothing is
  std::unique_ptr<exec::Executor> executor_;
  std::unique_ptr<exec::Executor> evaluation_;  // absent: the job does not evaluate
  std::optional<NoiseScale> noise_scale_;
  std::unique_ptr<StateCheck> check_;  // absent: the job does not check

  // Steps of a batch that is still growing.
  struct Small {
    Job job;
    std::unique_ptr<exec::Executor> executor;
  };
  std::map<std::int64_t, Small> small_;  // by sequences, made when first met
  const exec::Executor* last_ = nullptr;
  const Seconds op_deadline_;
};

}  // namespace lockstep::train
