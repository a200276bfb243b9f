#include "lockstep/train/session.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/exec/stall.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/predictions.h"

namespace lockstep::train {
namespace {

Bytes bytes_sent(const comm::Ledger& ledger) {
  Bytes sum;
  for (const auto& [key, entry] : ledger.entries())
    if (key.axis != kCheckpointAxis) sum += entry.sent;
  return sum;
}

nn::TensorGroup tensor_group(const Job& job, const exec::Groups& groups, Seconds op_deadline) {
  const auto found = groups.of(program::CommGroup::kTensor);
  if (found.empty()) return {};
  const bool copies = model::copies(job.model, job.spec.layout.degrees.tp) > 1;
  return {*found[0], job.spec.layout.sp, op_deadline, copies ? &groups.copies() : nullptr};
}

nn::ContextGroup context_group(const exec::Groups& groups, Seconds op_deadline) {
  if (comm::Communicator* const found = groups.context()) return {*found, op_deadline};
  return {};
}

nn::ExpertGroup expert_group(const exec::Groups& groups, Seconds op_deadline) {
  nn::ExpertGroup group;
  if (comm::Communicator* const found = groups.experts()) group = {*found, op_deadline};
  if (comm::Communicator* const found = groups.expert_tensor())
    group.tensor = {*found, op_deadline};
  return group;
}

// The failure, the way from this rank to the cause, and where everyone stands.
comm::CommError explained(const comm::CommError& failure, const exec::StallReport& report,
                          Rank rank) {
  Error error = failure.error();
  std::istringstream lines(report.describe_from(rank));
  for (std::string line; std::getline(lines, line);) error.message += "\n  " + line;
  const auto culprit = report.culprits.size() == 1 ? report.culprits[0] : failure.culprit();
  return {std::move(error), failure.op(), culprit};
}

}  // namespace

Session::Session(const Job& job, comm::World& world, const std::string& label,
                 const data::TokenSource& source, Seconds op_deadline, const WorkspaceWrap& wrap,
                 InitialState initial)
    : job_(job),
      world_(world),
      memory_(world.device(), account_),
      place_(job.place(world.rank())),
      op_deadline_(op_deadline) {
  const Deadline deadline = Deadline::after(op_deadline);
  const at::Device device = tensor::torch_device_of(world.device());
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  const exec::Groups::Shared shared = {
      .tied = job.model.config.tied,
      .experts = !job.program.step.experts.empty(),
      .copies = model::copies(job.model, job.spec.layout.degrees.tp)};
  groups_ = std::make_unique<exec::Groups>(world, label, job.mesh, shared, deadline);
  groups_->agree(job.digest(), deadline);
  const tensor::ChargeTo charge(account_);
  runtime::WorkspaceSettings settings = job.workspace;
  settings.is_loaded = initial == InitialState::kLoaded;
  settings.device = device;
  settings.drawing.between = [&world, told = job.workspace.drawing.between](std::int64_t elements) {
    world.check();  // nobody draws for minutes beside a dead rank
    if (told) told(elements);
  };
  settings.place = [this, told = job.workspace.place](const program::Op& op, int part, bool waits) {
    comm::Position at = world_.position().get().value();
    at.part = part;
    at.waits = waits;
    world_.position().set(at);
    if (told) told(op, part, waits);
  };
  settings.check = [this](exec::StepSums& sums) {
    if (check_) check_->at_norm(sums);
  };
  workspace_ = std::make_unique<runtime::TensorWorkspace>(
      job.model, job.program.step, place_, settings, source,
      tensor_group(job, *groups_, op_deadline), context_group(*groups_, op_deadline),
      expert_group(*groups_, op_deadline));
  if (wrap) wrapped_ = wrap(*workspace_, world.rank());
  executor_ = make_executor(job.program);
  last_ = executor_.get();
  if (job.evaluation) evaluation_ = make_executor(*job.evaluation);
  if (job.program.step.checks)
    check_ = std::make_unique<StateCheck>(job, *workspace_, place_, world, label, op_deadline);
  if (job.program.step.noise) noise_scale_.emplace(job.spec.train.noise_scale);
}

std::unique_ptr<exec::Executor> Session::make_executor(const program::Program& program) {
  exec::Workspace& seen = wrapped_ ? *wrapped_ : *workspace_;
  return std::make_unique<exec::Executor>(
      program, place_.coord, *groups_, seen,
      exec::Executor::Options{
          op_deadline_, [this, evaluates = program.step.forward_only](int op, bool waits) {
            world_.position().set({static_cast<std::int32_t>(step_), op, waits, evaluates});
          }});
}

std::vector<int> Session::own_segments() const {
  std::vector<int> segments;
  job_.program.step.for_each_segment(place_.coord,
                                     [&](int segment) { segments.push_back(segment); });
  return segments;
}

Session::Sized Session::sized(std::int64_t sequences) {
  if (sequences == job_.spec.batch.global_batch) return {job_.program, *executor_};
  auto known = small_.find(sequences);
  if (known == small_.end()) {
    known = small_.emplace(sequences, Small{with_batch(job_, sequences), nullptr}).first;
    known->second.executor = make_executor(known->second.job.program);
  }
  return {known->second.job.program, *known->second.executor};
}

StepReport Session::step(std::int64_t step, const exec::Executor::Observer& observer) {
  const tensor::ChargeTo charge(account_);
  const at::AutoDispatchBelowADInplaceOrView no_graph;  // nothing here asks autograd
  step_ = step;
  const spec::StepBatch batch = job_.batch(step);
  const Sized work = sized(batch.sequences);
  last_ = &work.executor;
  spec::Batch cut = job_.spec.batch;
  cut.global_batch = batch.sequences;
  workspace_->begin_step(batch.first,
                         static_cast<int>(spec::num_microbatches(job_.spec.layout, cut)),
                         job_.adamw(step));
  const std::int64_t updates = workspace_->updates();
  StepReport report;
  if (check_) check_->begin_step(step);
  const exec::StepSums sums = run(work, observer, report);
  report.sequences = batch.sequences;
  report.grad_norm = std::sqrt(sums.squares.result());
  report.stop = sums.stops > 0;
  report.updated = workspace_->updates() > updates;
  report.is_finite = std::isfinite(report.grad_norm) && std::isfinite(report.loss);
  if (check_) end_check(sums, report);
  if (report.corrupt) return report;
  measure_noise(sums, report);
  measure_routers(sums, report);
  return report;
}

void Session::end_check(const exec::StepSums& sums, StepReport& report) {
  const RealClock clock;
  check_->end_step(report.updated);
  report.sent += Bytes{spot_check_bytes(job_)};
  report.time += clock.now().since_start;
  report.checks = check_->spent();
  if (!sums.is_sound()) report.corrupt = check_->verdict();
}

std::optional<Error> Session::check_state() {
  LS_CHECK(check_, "a job that does not check");
  return check_->check_now();
}

void Session::plan(const BitFlip& flip) {
  LS_CHECK(check_, "a job that does not check");
  check_->plan(flip);
}

EvalReport Session::evaluate(const data::TokenSource& validation,
                             const exec::Executor::Observer& observer) {
  LS_CHECK(evaluation_, "a job that does not evaluate");
  const tensor::ChargeTo charge(account_);
  const at::AutoDispatchBelowADInplaceOrView no_graph;
  workspace_->begin_evaluation(validation, job_.evaluation->step.shape.microbatches);
  EvalReport report;
  run({*job_.evaluation, *evaluation_}, observer, report);
  return report;
}

// The first microbatch's summand of a mean over all tokens becomes the mean over its own.
void Session::measure_noise(const exec::StepSums& sums, StepReport& report) {
  if (!noise_scale_) return;
  const double share = static_cast<double>(sums.tokens) /
                       static_cast<double>(std::max<std::int64_t>(sums.noise_tokens, 1));
  report.first = {sums.noise_squares.result() * share * share, sums.noise_tokens};
  noise_scale_->add(report.first, {sums.squares.result(), sums.tokens});
  report.noise_scale = noise_scale_->value();
}

// The means that parts/experts.cc defines.
void Session::measure_routers(const exec::StepSums& sums, StepReport& report) const {
  if (sums.expert_tokens.empty()) return;
  const model::Moe& moe = job_.model.config.moe;
  const auto tokens = static_cast<double>(report.sequences * job_.spec.batch.seq);
  const double balance =
      static_cast<double>(moe.experts) / static_cast<double>(moe.top_k * job_.spec.batch.seq);
  report.aux_loss = job_.spec.train.moe_aux_loss_coeff * balance * sums.aux_loss.result() / tokens;
  report.z_loss = job_.spec.train.moe_z_loss_coeff * sums.z_loss.result() / tokens;
  report.expert_tokens = sums.expert_tokens;
  report.router_bias = workspace_->router_bias();
  report.rows_met = workspace_->rows_met();
}

exec::StepSums Session::run(const Sized& work, const exec::Executor::Observer& observer,
                            EvalReport& report) {
  memory_.reset_peak();
  const Bytes sent_before = bytes_sent(world_.ledger());
  const RealClock clock;
  try {
    const exec::StepSums sums = work.executor.run(observer);
    world_.position().rest();
    report.loss = sums.loss.result() / static_cast<double>(sums.tokens);
    report.tokens = sums.tokens;
    report.time = clock.now().since_start;
    report.peak_bytes = memory_.peak();
    report.sent = bytes_sent(world_.ledger()) - sent_before;
    return sums;
  } catch (const comm::CommError& failure) {
    const std::vector<comm::LastSeen> seen = world_.last_seen();
    if (static_cast<int>(seen.size()) != world_.size()) throw;
    const auto part_text = [&](const program::Op& op, int part) {
      const model::Unit& unit = job_.model.unit(op.unit);
      const parts::UnitPasses passes(job_.model.config, unit, sizes_of(job_, world_.rank()).unit);
      const auto [text, group] =
          passes.meeting(parts::pass_of(work.program.step, unit, op).value(), part);
      return exec::PartMeeting{text, cost::axis_of(group)};
    };
    throw explained(failure, exec::explain_stall(work.program, job_.mesh, seen, part_text),
                    world_.rank());
  }
}

}  // namespace lockstep::train
