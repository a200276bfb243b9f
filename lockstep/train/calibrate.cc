#include "lockstep/train/calibrate.h"

#include <algorithm>
#include <set>

#include "lockstep/base/check.h"
#include "lockstep/comm/measure.h"
#include "lockstep/cost/measured/calibrated_prices.h"
#include "lockstep/cost/measured/calibration_fit.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/program/lower.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/train/predictions.h"
#include "lockstep/train/session.h"
#include "lockstep/train/step_record.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kMostBlocks = 8;
constexpr int kWarmSteps = 1;
constexpr int kRounds = 3;  // all probes in turn, so that a machine's moods meet all of them
constexpr double kMostSlowdown = 2;  // computation and communication take turns on one core
constexpr std::size_t kMostKept = 60;
constexpr Seconds kProbeDeadline = {600};
constexpr double kCollectiveShare = 0.25;  // of the budget

// What the parts of passes took on this rank.
class PartSamples {
 public:
  void add(const std::string& pass, const std::vector<SteadyPoint>& times) {
    auto& parts = passes_[pass];
    parts.resize(times.size() - 1);
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].push_back(std::chrono::duration<double>(times[i + 1] - times[i]).count());
  }

  // Medians. REQUIRES: passes in which every collective was waited for at once.
  void write(const Job& job, cost::Calibration& into) {
    std::map<int, parts::UnitPasses> units;
    for (const program::Op& op : job.program.list({0})) {
      const std::string pass =
          op.unit < 0 ? "" : cost::pass_name(job.program.step, job.model.unit(op.unit), op);
      if (!passes_.contains(pass) || into.parts.contains(pass)) continue;
      const model::Unit& unit = job.model.unit(op.unit);
      const parts::UnitPasses& lists =
          units
              .try_emplace(job.model.order[static_cast<std::size_t>(op.unit)], job.model.config,
                           unit, sizes_of(job, Rank{0}).unit)
              .first->second;
      const parts::Pass& list = lists.at(*parts::pass_of(job.program.step, unit, op));
      parts::Sizes sizes = lists.sizes();
      auto measured = passes_.at(pass).begin();
      std::vector<sim::PartCost>& costs = into.parts[pass];  // of the head's F none
      for_each_part(
          list, sizes,
          [&](std::size_t i, std::int64_t) {
            std::vector<double>& all = *measured++;
            std::ranges::nth_element(all, all.begin() + std::ssize(all) / 2);
            const Seconds time = {all[all.size() / 2]};
            if (list.parts[i].kind == parts::Kind::kWait)
              costs.back().lane = time;
            else
              costs.push_back({time, {}});
          },
          [] {});
    }
  }

 private:
  std::map<std::string, std::vector<std::vector<double>>> passes_;
};

// Runs the probe for about that long; its steps on all ranks, without the first.
cost::RunTimeline run_probe(Job job, comm::World& world, const std::string& label, Seconds budget,
                            PartSamples* samples) {
  const data::MockTokens source(1, job.spec.model.vocab, /*ignore_some=*/false);
  if (samples != nullptr)
    job.workspace.timed = [&](const program::Op& op, const std::vector<SteadyPoint>& times) {
      samples->add(cost::pass_name(job.program.step, job.model.unit(op.unit), op), times);
    };
  Session session(job, world, label, source, kProbeDeadline);
  StepRecord record(kMostKept);
  const Deadline end = Deadline::after(budget);
  bool stop = false;
  for (std::int64_t step = 0; !stop; ++step) {
    if (step >= kWarmSteps && end.expired() && world.rank() == Rank{0})
      session.workspace().ask_to_stop();
    stop = session.step(step).stop;
    if (step >= kWarmSteps) record.add(step, session);
  }
  return record.collect(job, world, label, Deadline::after(kProbeDeadline));
}

// By which computation and communication slow each other down, so that the overlapping probe takes
// as long as it did. It grows with the factor, nearly.
double fitted_slowdown(const Job& job, cost::Calibration known, Seconds measured) {
  const cost::StepSizes sizes = sizes_of(job, Rank{0});
  const auto length = [&](double factor) {
    known.slowdown = factor;
    const auto prices = cost::CalibratedPrices::create(known, job.program, job.model, sizes,
                                                       job.mesh, "the calibration")
                            .value();
    sim::Conditions conditions;
    conditions.host = [&](Coord c, const program::Op& op) { return prices.host(c, op); };
    conditions.slowdown = {factor, factor};
    return sim::simulate(
               job.program, [&](Coord c, const program::Op& op) { return prices.time(c, op); },
               conditions)
        .value()
        .makespan;
  };
  double low = 1, high = kMostSlowdown;
  if (!(length(low) < measured && length(low) < length(high))) return low;
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (length(middle) < measured ? low : high) = middle;
  }
  return (low + high) / 2;
}

cost::CollectiveTime fitted(comm::OpKind kind, std::int64_t members,
                            const std::vector<comm::PhaseTimes>& times) {
  std::vector<std::pair<double, double>> issue, lane, finish;
  for (const comm::PhaseTimes& one : times) {
    if (one.op != kind) continue;
    const auto bytes = static_cast<double>(one.bytes.value);
    issue.emplace_back(bytes, one.issue.value);
    lane.emplace_back(bytes, one.lane.value);
    finish.emplace_back(bytes, one.finish.value);
  }
  return {kind, members, cost::fit_line(issue), cost::fit_line(lane), cost::fit_line(finish)};
}

}  // namespace

Result<Calibrator> Calibrator::create(const spec::Spec& spec, int cores) {
  const mesh::Degrees& degrees = spec.layout.degrees;
  if (degrees.ep > 1)
    return Error{Code::kNotRunYet, join_parts("ep = ", degrees.ep, " cannot be calibrated yet"),
                 "the nearest: ep = 1"};
  const std::int64_t share = degrees.tp * degrees.cp;
  if (share > cores)
    return Error{
        Code::kUnsuitableEnvironment,
        join_parts("tp x cp = ", degrees.tp, " x ", degrees.cp,
                   " needs as many ranks at once, but there are ", cores, " cores"),
        join_parts("calibrate on a machine that has them, or with tp x cp of at most ", cores)};
  Calibrator made(spec);
  made.ranks_ = static_cast<int>(std::min<std::int64_t>(spec.world(), cores) / share * share);
  made.spec_.model.layers = std::min(spec.model.layers, kMostBlocks);
  // Nothing may be skipped because a loss diverged.
  made.spec_.train.lr = {.peak = 1e-9};
  made.spec_.train.clip = std::max(spec.train.clip, 1.0);
  const model::Drop rows = spec.layout.recompute.drop.rest();
  const std::vector<int> all = {static_cast<int>(made.spec_.model.layers)};
  made.spec_.train.tp_overlap = false;
  for (const auto& [label, zero, recompute, microbatches] :
       {std::tuple("fused", 0, spec::Recompute{rows}, 3),
        {"split", 0, {rows}, 3},
        {"recomputed", 0, spec::with_blocks(rows, all, all), 2},
        {"sharded", 3, {rows}, 2}})
    LS_TRY(made.add_probe(label, zero, recompute, microbatches));
  made.spec_.train.tp_overlap = true;
  if (share > 1) LS_TRY(made.add_probe("overlapped", 0, {rows}, 3));
  made.split_backward(made.probes_[1].job);
  return made;
}

Result<void> Calibrator::add_probe(const std::string& label, int zero,
                                   const spec::Recompute& recompute, int microbatches) {
  spec::Spec spec = spec_;
  spec::Layout layout;
  layout.degrees.tp = spec_.layout.degrees.tp;
  layout.degrees.etp = spec_.layout.degrees.etp;
  layout.degrees.cp = spec_.layout.degrees.cp;
  layout.context = spec_.layout.context;
  layout.degrees.dp = ranks_ / (layout.degrees.tp * layout.degrees.cp);
  layout.sp = spec_.layout.sp;
  layout.zero = zero;
  layout.reduce = spec::default_reduce(zero);
  layout.recompute = recompute;
  spec.layout = layout;
  spec.cluster.reset();
  spec.batch.ramp = {};
  spec.batch.global_batch = layout.degrees.dp * spec.batch.microbatch * microbatches;
  Job job = LS_TRY(make_job(spec));
  probes_.push_back({label, std::move(job)});
  return {};
}

void Calibrator::split_backward(Job& job) const {
  using pipeline::Pass;
  using pipeline::PassKind;
  const pipeline::Shape shape = job.program.step.shape;
  std::vector<Pass> order;
  for (int mb = 0; mb < shape.microbatches; ++mb) {
    order.push_back({PassKind::kForward, {0}, {mb}});
    if (mb > 0) order.push_back({PassKind::kWeightGrad, {0}, {mb - 1}});
    order.push_back({PassKind::kInputGrad, {0}, {mb}});
  }
  order.push_back({PassKind::kWeightGrad, {0}, {shape.microbatches - 1}});
  const auto timetable = pipeline::Schedule::create(shape, pipeline::Placement::kLoop, {order});
  job.program = program::lower(timetable.value(), job.program.step).value();
}

void Calibrator::measure_collectives(comm::World& world, const std::string& name, Seconds budget,
                                     cost::Calibration& into) const {
  const Job& job = probes_.front().job;
  const cost::StepSizes sizes = sizes_of(job, Rank{0});
  std::set<Bytes> units = {{256}, {4096}}, tensors = {{256}};
  for (const model::FlatLayout& flat :
       model::flat_layouts(job.model, sizes.unit.tp, sizes.unit.ep, sizes.unit.etp))
    for (const std::int64_t width : {sizes.unit.width(), sizes.unit.wide()})
      units.insert({flat.padded(1) * width});
  for (const std::int64_t part : {4, 2, 1})
    tensors.insert({boundary_bytes(job.model.config, sizes.unit) / part});
  using comm::OpKind;
  std::vector<int> groups;  // sizes that layouts of as many ranks can have
  for (int size = 2; size <= ranks_; ++size)
    if (ranks_ % size == 0) groups.push_back(size);
  const auto parts = static_cast<double>(groups.size() * (3 * units.size() + tensors.size()));
  const Seconds each = {budget.value / std::max(parts, 1.0)};
  for (const int size : groups) {
    const int first = world.rank().value / size * size;
    std::vector<Rank> members;
    for (int r = 0; r < size; ++r) members.push_back({first + r});
    const Deadline deadline = Deadline::after(kProbeDeadline);
    const auto comm = world.connect(join_parts(name, " calibrate ", size, " at ", first),
                                    "calibrate", members, deadline);
    for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllReduce})
      into.collectives.push_back(
          fitted(kind, size,
                 comm::measure_phases(*comm, kind, {units.begin(), units.end()}, each, deadline)));
    if (size != 2) continue;
    const auto sent = comm::measure_phases(*comm, OpKind::kSend, {tensors.begin(), tensors.end()},
                                           each, deadline);
    for (const OpKind kind : {OpKind::kSend, OpKind::kRecv})
      into.collectives.push_back(fitted(kind, size, sent));
  }
}

cost::Calibration Calibrator::run(comm::World& world, const std::string& name,
                                  Seconds budget) const {
  LS_CHECK(world.size() == ranks_, "a world of ", world.size(), " ranks for ", ranks_);
  cost::Calibration made;
  made.ranks = ranks_;
  made.print = cost::fingerprint(spec_.model, sizes_of(probes_.front().job, Rank{0}).unit);
  measure_collectives(world, name, {budget.value * kCollectiveShare}, made);
  const Seconds on_probes = {budget.value * (1 - kCollectiveShare)};
  const Seconds each = {on_probes.value / kRounds / static_cast<double>(probes_.size())};
  PartSamples samples;
  std::vector<cost::RunTimeline> measured(probes_.size());
  std::vector<cost::StepSizes> sizes;
  for (const ProbeJob& probe : probes_) sizes.push_back(sizes_of(probe.job, Rank{0}));
  Seconds spent;  // by timelines, which all ranks have of all ranks: they leave the loop together
  for (int round = 0; round == 0 || (round < kRounds && spent < on_probes); ++round)
    for (std::size_t i = 0; i < probes_.size(); ++i) {
      const std::string label = join_parts(name, " ", probes_[i].label, " ", round);
      for (program::StepTimeline& step :
           run_probe(probes_[i].job, world, label, each,
                     probes_[i].has_passes_alone() ? &samples : nullptr)
               .steps) {
        spent += step.makespan();
        measured[i].steps.push_back(std::move(step));
      }
    }
  std::vector<cost::Probe> all;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    const Job& job = probes_[i].job;
    if (!probes_[i].has_passes_alone()) continue;
    samples.write(job, made);
    all.push_back({job.program, job.model, sizes[i], job.mesh, measured[i].steps});
  }
  fit_ops(all, made);
  made.slowdown = fitted_slowdown(probes_.back().job, made, measured.back().typical().makespan());
  return made;
}

}  // namespace lockstep::train
