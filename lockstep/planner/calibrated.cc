#include "lockstep/planner/calibrated.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "lockstep/cost/measured/calibrated_prices.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/planner/layout_of.h"
#include "lockstep/program/memory_walk.h"
#include "lockstep/program/op_table.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/step.h"

namespace lockstep::planner {
namespace {

using cost::Memory;
using cost::PriceRequest;
using cost::StepTime;
using program::Op;
using program::OpKind;
using program::ValueKind;

std::vector<PriceRequest> lattice_points(const Lattice& lattice) {
  std::vector<PriceRequest> found;
  for (const Core& core : lattice.cores())
    for (const int pp : lattice.pipelines(core)) {
      PriceRequest r = lattice.of(core);
      r.pp = pp;
      r.dp = lattice.data(core, pp);
      for (const std::int64_t b : lattice.microbatches(r.dp)) {
        r.microbatch = b;
        for (const Sharding& s : lattice.shardings(core, pp))
          for (const Timetable& t : lattice.timetables(pp)) {
            if (!lattice.fits(s, r.microbatches()) || !lattice.fits(t, pp, r.microbatches()))
              continue;
            r.zero = s.zero, r.dp_shard = s.group, r.schedule = t.schedule, r.chunks = t.chunks;
            for (const model::Drop& drop : lattice.drops())
              for (const cost::Placement placement : lattice.placements(core, pp)) {
                r.drop = drop, r.placement = placement;
                found.push_back(r);
              }
          }
      }
    }
  return found;
}

double& term_of_op(StepTime& time, OpKind kind) {
  switch (kind) {
    case OpKind::kForward:
      return time.forward;
    case OpKind::kBackward:
    case OpKind::kInputGrad:
    case OpKind::kWeightGrad:
      return time.backward;
    case OpKind::kRecompute:
      return time.recompute;
    case OpKind::kGather:
    case OpKind::kAllGatherUpdated:
    case OpKind::kReduce:
    case OpKind::kReduceAcross:
      return time.data;
    case OpKind::kReduceReplicated:
      return time.tensor;
    case OpKind::kSend:
    case OpKind::kPostRecv:
    case OpKind::kReduceTied:
      return time.pipe;
    default:
      return time.optimizer;
  }
}

// Where the time of the lists went, a Wait to what it waits for; mean of coordinates. Standing
// still before a meeting until the last has come is bubble. The sum is the makespan.
StepTime terms_of_lists(const TimedStep& step) {
  const sim::Simulation& times = step.simulation;
  std::map<OpKind, Seconds> arrived;
  for (std::size_t c = 0; c < times.coords.size(); ++c)
    for (const program::TimedOp& timed : times.coords[c])
      if (const OpKind kind = step.program.lists[c][static_cast<std::size_t>(timed.op)].kind;
          is_blocking_collective(kind))
        arrived[kind] = std::max(arrived[kind], timed.start);
  StepTime sum;
  for (std::size_t c = 0; c < times.coords.size(); ++c) {
    const auto& list = step.program.lists[c];
    Seconds before;
    for (const program::TimedOp& timed : times.coords[c]) {
      const Op& op = list[static_cast<std::size_t>(timed.op)];
      const Op& cause = op.kind == OpKind::kWait ? list[static_cast<std::size_t>(op.target)] : op;
      const Seconds begin = is_blocking_collective(op.kind)
                                ? std::clamp(arrived[op.kind], timed.start, timed.end)
                                : timed.start;
      sum.bubble += (begin - before).value;
      term_of_op(sum, cause.kind) += (timed.end - begin).value;
      before = timed.end;
    }
    sum.bubble += (times.makespan - before).value;
  }
  for (const cost::StepTerm& term : cost::kStepTerms)
    sum.*term.seconds /= static_cast<double>(times.coords.size());
  return sum;
}

Memory walked_memory(const program::Program& program, Coord coord,
                     const program::ProgramBytes& bytes) {
  const program::MemoryWalk walked = program::walk(program, coord, bytes);
  Memory memory{.stage = coord.value};
  const auto of = [&](ValueKind kind) {
    return static_cast<double>(walked.by_kind[static_cast<std::size_t>(kind)]);
  };
  memory.weights = of(ValueKind::kParam) + of(ValueKind::kParamShard);
  memory.grads = of(ValueKind::kMainGrad) + of(ValueKind::kReduced) + of(ValueKind::kAccGrad) +
                 of(ValueKind::kGradShard);
  memory.optimizer = of(ValueKind::kOptimizer);
  memory.activations = of(ValueKind::kTokens) + of(ValueKind::kAct) + of(ValueKind::kCheckpoint) +
                       of(ValueKind::kStash);
  memory.transients = static_cast<double>(walked.peak) - memory.allocated();
  if (walked.peak_op < 0) return memory;
  const Op& op = program.list(coord)[static_cast<std::size_t>(walked.peak_op)];
  memory.event = op.kind == OpKind::kUpdate       ? cost::PeakEvent::kOptimizer
                 : op.unit == program.step.head() ? cost::PeakEvent::kLoss
                                                  : cost::PeakEvent::kBlockBackward;
  return memory;
}

// Settings of a run that one calibration fixes and a search varies.
constexpr std::array<std::string_view, 5> kVaried = {"batch.microbatch", "layout.tp", "layout.sp",
                                                     "layout.etp", "rows recomputed"};

Result<void> check_known(const cost::CalibrationFile& known, const model::ModelConfig& model,
                         model::UnitSizes sizes) {
  const auto fixed = [](cost::Fingerprint print) {
    std::erase_if(print, [](const cost::Trait& trait) {
      return std::ranges::find(kVaried, trait.name) != kVaried.end();
    });
    return print;
  };
  return check_same(fixed(known.calibration.print), fixed(cost::fingerprint(model, sizes)),
                    known.name, "make one for this run with lockstep calibrate");
}

std::string ranks_of(const cost::CalibrationFile& known) {
  return join_parts("ranks = ", known.calibration.ranks, " (", known.calibration.ranks_are, ")");
}

// Times of one rank at work and of two that share the machine are not of one machine.
Result<void> check_same_ranks(const std::vector<cost::CalibrationFile>& known) {
  for (const cost::CalibrationFile& one : known)
    if (ranks_of(one) != ranks_of(known.front()))
      return Error{Code::kConflict,
                   join_parts("`", one.name, "` was measured with ", ranks_of(one), ", `",
                              known.front().name, "` with ", ranks_of(known.front())),
                   "make them together: lockstep calibrate FILE --all --out DIR"};
  return {};
}

cost::Fingerprint print_of(const spec::Spec& spec) {
  return cost::fingerprint(spec.model, spec::step_sizes(spec).unit);
}

std::string unknown_text(const spec::Spec& spec) {
  const model::Drop rows = spec.layout.recompute.drop.rest();
  const mesh::Degrees& d = spec.layout.degrees;
  const bool has_etp = spec.model.moe.experts > 0 && d.etp != d.tp;
  return join_parts("microbatch ", spec.batch.microbatch, " with tp ", d.tp,
                    has_etp ? join_parts(" and etp ", d.etp) : "",
                    d.tp > 1 && !spec.layout.sp ? " without sp" : "",
                    rows != model::kKeepAll ? " and recompute=" + spec::to_text(rows) : "");
}

}  // namespace

Result<sim::Simulation> simulate_measured(const program::Program& program, const spec::Spec& spec,
                                          const model::Model& model,
                                          const cost::CalibrationFile& known) {
  const auto mesh = mesh::Mesh::create(spec.layout.degrees, spec.layout.order);
  if (!mesh.ok()) return mesh.error();
  const cost::StepSizes sizes = spec::step_sizes(spec);
  const cost::Calibration& times = known.calibration;
  const auto prices =
      cost::CalibratedPrices::create(times, program, model, sizes, *mesh, known.name);
  if (!prices.ok()) return prices.error();
  sim::Conditions conditions;
  conditions.host = [&](Coord c, const Op& op) { return prices->host(c, op); };
  conditions.slowdown = {times.slowdown, times.slowdown};
  Result<sim::Simulation> made = sim::simulate(
      program, [&](Coord c, const Op& op) { return prices->time(c, op); }, conditions);
  if (made.ok())
    for (int c = 0; c < program.step.shape.coords; ++c)
      made->parts.push_back(prices->parts({c}, made->coords[static_cast<std::size_t>(c)]));
  return made;
}

Result<TimedStep> timed_step(const spec::Spec& spec, const model::Model& model,
                             const cost::CalibrationFile& known) {
  Result<program::Program> program = spec::program_for(model, spec.layout, spec.batch);
  if (!program.ok()) return program.error();
  Result<sim::Simulation> simulation = simulate_measured(*program, spec, model, known);
  if (!simulation.ok()) return simulation.error();
  return TimedStep{*std::move(program), *std::move(simulation)};
}

Question calibrated_question(Question question, DType dtype) {
  question.cp = question.ep = 1;
  if (dtype == DType::kF32) question.precision = cost::Precision::kFp32;
  return question;
}

Result<CalibratedSearch> CalibratedSearch::create(const Question& question,
                                                  const model::ModelConfig& model, DType dtype,
                                                  std::vector<cost::CalibrationFile> known) {
  for (const cost::CalibrationFile& one : known)
    if (const auto same =
            check_known(one, model, {.batch = 1, .seq = question.seq, .dtype = dtype});
        !same.ok())
      return same.error();
  if (const auto same = check_same_ranks(known); !same.ok()) return same.error();
  if (const std::int64_t size = Lattice(question).size(); size > kMostTimed)
    return Error{Code::kOutOfRange,
                 join_parts(with_commas(size), " layouts of ", question.devices,
                            " devices are too many to time op by op, the limit is ",
                            with_commas(kMostTimed)),
                 "name fewer --schedules or devices, or leave --calibration out"};
  Result<model::Model> described = model::describe(model);
  if (!described.ok()) return described.error();
  return CalibratedSearch(question, *std::move(described), dtype, std::move(known));
}

spec::Spec CalibratedSearch::spec_of(const spec::Layout& layout, std::int64_t microbatch) const {
  spec::Spec spec;
  spec.model = model_.config;
  spec.layout = layout;
  spec.batch = {question_.seq, question_.global_batch, microbatch};
  spec.train.dtype = dtype_;
  return spec;
}

std::vector<spec::Spec> CalibratedSearch::layouts() const {
  std::vector<spec::Spec> found;
  for (const PriceRequest& r : lattice_points(Lattice(question_))) {
    spec::Spec spec = spec_of(layout_of(r), r.microbatch);
    if (spec::legal(spec.model, spec.layout, spec.batch, dtype_).empty())
      found.push_back(std::move(spec));
  }
  return found;
}

std::vector<spec::Spec> CalibratedSearch::unmeasured() const {
  std::vector<spec::Spec> found;
  std::vector<cost::Fingerprint> prints;
  for (spec::Spec& spec : layouts()) {
    if (times_for(spec) != nullptr) continue;
    cost::Fingerprint print = print_of(spec);
    if (std::ranges::find(prints, print) != prints.end()) continue;
    prints.push_back(std::move(print));
    found.push_back(std::move(spec));
  }
  std::ranges::stable_sort(found, std::greater(),
                           [](const spec::Spec& spec) { return spec.batch.microbatch; });
  return found;
}

const cost::CalibrationFile* CalibratedSearch::times_for(const spec::Spec& spec) const {
  const cost::Fingerprint print = print_of(spec);
  const auto found = std::ranges::find_if(
      known_, [&](const cost::CalibrationFile& one) { return one.calibration.print == print; });
  return found == known_.end() ? nullptr : &*found;
}

Result<TimedLayout> CalibratedSearch::time(const spec::Spec& spec,
                                           const cost::CalibrationFile& known) const {
  const auto request = request_of(question_, spec.layout, spec.batch.microbatch);
  if (!request.ok()) return request.error();
  const Result<TimedStep> step = timed_step(spec, model_, known);
  if (!step.ok()) return step.error();
  TimedLayout made;
  const program::ProgramBytes bytes =
      cost::program_bytes(model_, step->program.step, spec::step_sizes(spec));
  for (int c = 0; c < step->program.step.shape.coords; ++c)
    made.stages.push_back(walked_memory(step->program, {c}, bytes));
  cost::Price price = cost::price(*request);
  const double closed_form = price.time.total();
  price.time = terms_of_lists(*step);
  price.memory = *std::ranges::max_element(made.stages, {}, &Memory::allocated);
  price.fits = price.memory.allocated() <= price.usable;
  const double seconds = step->simulation.makespan.value;
  price.mfu_causal *= closed_form / seconds;
  price.mfu_full *= closed_form / seconds;
  price.tokens_per_s *= closed_form / seconds;
  made.finalist = {.priced = {*request, price},
                   .seconds = seconds,
                   .bubble = price.time.bubble + price.time.pipe,
                   .closed_form = closed_form,
                   .simulated = true,
                   .layers = spec.layout.layers,
                   .recomputed = spec.layout.recompute.blocks};
  return made;
}

Result<TimedLayout> CalibratedSearch::time(const spec::Layout& layout,
                                           std::int64_t microbatch) const {
  const spec::Spec spec = spec_of(layout, microbatch);
  if (const auto refused = spec::legal(spec.model, spec.layout, spec.batch, dtype_);
      !refused.empty())
    return refused.front();
  const cost::CalibrationFile* known = times_for(spec);
  if (known == nullptr)
    return Error{Code::kConflict,
                 join_parts("no calibration is of ", unknown_text(spec), ", as ", to_text(layout),
                            " needs it"),
                 "measure one with `lockstep calibrate`, and add --calibration FILE"};
  return time(spec, *known);
}

CalibratedWalk CalibratedSearch::walk() const {
  CalibratedWalk found;
  for (const spec::Spec& spec : layouts()) {
    ++found.layouts;
    const cost::CalibrationFile* known = times_for(spec);
    if (known == nullptr) {
      ++found.unknown[unknown_text(spec)];
      continue;
    }
    Result<TimedLayout> timed = time(spec, *known);
    if (!timed.ok()) {
      ++found.unknown[timed.error().message];
      continue;
    }
    ++found.timed;
    const double bytes = timed->finalist.priced.price.memory.allocated();
    if (found.least_bytes == 0 || bytes < found.least_bytes) found.least_bytes = bytes;
    if (timed->finalist.priced.price.fits) found.best.push_back(*std::move(timed));
  }
  std::ranges::stable_sort(found.best, {},
                           [](const TimedLayout& one) { return one.finalist.seconds; });
  return found;
}

}  // namespace lockstep::planner
