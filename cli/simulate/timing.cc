#include "cli/simulate/timing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/cost/op_cost.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/draw/figure_of.h"
#include "lockstep/model/flops.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/pipeline/search/auto_schedule.h"
#include "lockstep/pipeline/search/refill.h"
#include "lockstep/planner/calibrated.h"
#include "lockstep/program/lower.h"
#include "lockstep/spec/contradictions.h"
#include "lockstep/spec/step.h"

namespace lockstep::cli {
namespace {

using pipeline::Schedule;
using program::OpKind;

// How long parts of a step take once the shape of its schedule is known. Times are whole numbers of
// a tick wherever the costs are decimal numbers and stages are equal, so that sums of them are
// exact (sim/stage_sim.h); only the end result is divided by `ticks`.

struct StageWorkload {
  sim::StageCosts costs;
  double ticks = 1;  // of one unit of the request's costs
};

struct UnitWorkload {
  program::StepShape step;
  // A Send takes no time: a hop is latency, which tensors on their way share, as sim/stage_sim.h
  // has it.
  cost::OpTimes times;
  Seconds hop;
  double ticks = 1;

  // The same stage by stage; a unit that is recomputed counts its forward pass with I.
  StageWorkload stages() const {
    StageWorkload work{{}, ticks};
    work.costs.hop = hop;
    for (int stage = 0; stage < step.shape.stages(); ++stage) {
      Seconds forward, input_grad, weight_grad;
      for (std::int32_t i = step.stage_begin[stage]; i < step.stage_begin[stage + 1]; ++i) {
        const cost::UnitTimes& unit = times.units[i];
        forward += unit.forward;
        input_grad += unit.input_grad;
        if (step.recomputes(i)) input_grad += unit.forward;
        weight_grad += unit.weight_grad;
      }
      work.costs.forward.push_back(forward);
      work.costs.input_grad.push_back(input_grad);
      work.costs.weight_grad.push_back(weight_grad);
    }
    return work;
  }
};

// The power of ten that makes whole numbers of all costs; 1 when none up to a million does.
double decimal_scale(const StepCosts& costs) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    bool is_whole = true;
    for (const double cost : {costs.forward, costs.input_grad, costs.weight_grad, costs.hop,
                              costs.gather, costs.reduce})
      is_whole = is_whole && std::round(cost * scale) / scale == cost;
    if (is_whole) return scale;
  }
  return 1;
}

// A cost in ticks; whole when decimal_scale found a scale.
Seconds in_ticks(double cost, double scale, double parts) {
  const double scaled = cost * scale;
  return {(scale > 1 ? std::round(scaled) : scaled) * parts};
}

// FLOPs of one token; attention is recomputed and differentiated twice in I, and has no weights.
struct UnitFlops {
  double forward = 0, input_grad = 0, weight_grad = 0;
};

// Of a unit, or of all in a model.
template <class Part>
UnitFlops flops_of(const Part& part, std::int64_t seq) {
  const model::TokenFlops flops = flops_per_token(part, seq, model::Mask::kCausal);
  return {flops.forward().value, flops.matmul.value + 2 * flops.attention.value,
          flops.matmul.value};
}

StepCosts costs_of(const SimulateRequest& request, const model::Model* model) {
  if (model == nullptr || request.has_costs) return request.costs;
  const UnitFlops all = flops_of(*model, request.spec->batch.seq);
  StepCosts costs = request.costs;
  costs.forward = 1;
  costs.input_grad = all.input_grad / all.forward;
  costs.weight_grad = all.weight_grad / all.forward;
  return costs;
}

// Equal blocks.
UnitWorkload blocks(const SimulateRequest& request, const pipeline::Shape& shape) {
  const PlainStep& plain = *request.step;
  UnitWorkload work;
  const int units = shape.stages() * plain.layers + 2;
  work.step.shape = shape;
  work.step.stage_begin = program::split_units(units, shape.stages());
  work.step.zero = plain.zero;
  work.step.period = spec::default_reduce(plain.zero);
  work.times.units.resize(units);
  const StepCosts& costs = request.costs;
  const double scale = decimal_scale(costs), parts = shape.chunks * plain.layers;
  cost::UnitTimes block;
  block.forward = block.recompute = in_ticks(costs.forward, scale, 1);
  block.input_grad = in_ticks(costs.input_grad, scale, 1);
  block.weight_grad = in_ticks(costs.weight_grad, scale, 1);
  block.gather = in_ticks(costs.gather, scale, 1);
  block.reduce = in_ticks(costs.reduce, scale, 1);
  for (int i = 1; i + 1 < units; ++i) work.times.units[i] = block;
  if (plain.recompute) {
    work.step.recompute.assign(work.times.units.size(), true);
    work.step.recompute.front() = work.step.recompute.back() = false;
  }
  work.hop = in_ticks(costs.hop, scale, parts);
  work.ticks = scale * parts;
  return work;
}

program::StepShape step_of(const SimulateRequest& request, const model::Model& model,
                           const pipeline::Shape& shape) {
  spec::Layout layout = request.spec->layout;
  layout.chunks = shape.chunks;
  return spec::step_shape(model, layout, request.spec->batch);
}

// The units of a model, whose costs are split in proportion to FLOPs and parameters.
UnitWorkload units_of(const SimulateRequest& request, const model::Model& model,
                      const pipeline::Shape& shape) {
  const spec::Spec& spec = *request.spec;
  UnitWorkload work;
  work.step = step_of(request, model, shape);
  const StepCosts costs = costs_of(request, &model);
  const UnitFlops all = flops_of(model, spec.batch.seq);
  const mesh::Degrees& d = spec.layout.degrees;
  const auto shards = static_cast<double>(d.dp_shard.value_or(d.dp) * d.cp);
  const auto share = [&](double cost, double part, double whole) {
    return Seconds{whole > 0 ? cost * shape.coords * part / whole : 0};
  };
  const auto all_parameters = static_cast<double>(count(model).total);
  const auto set_state = [&](cost::UnitTimes& segment, std::int64_t count) {
    const auto parameters = static_cast<double>(count);
    segment.gather = share(costs.gather, parameters, all_parameters);
    segment.reduce = share(costs.reduce, parameters, all_parameters);
    segment.reduce_across = {segment.reduce.value / shards};
  };
  work.times.units.resize(static_cast<std::size_t>(work.step.num_segments()));
  for (int i = 0; i < model.num_units(); ++i) {
    const UnitFlops one = flops_of(model.unit(i), spec.batch.seq);
    const model::ParamCount parameters = count(model.unit(i));
    cost::UnitTimes& unit = work.times.units[static_cast<std::size_t>(i)];
    unit.forward = unit.recompute = share(costs.forward, one.forward, all.forward);
    unit.input_grad = share(costs.input_grad, one.input_grad, all.input_grad);
    unit.weight_grad = share(costs.weight_grad, one.weight_grad, all.weight_grad);
    set_state(unit, parameters.total - parameters.expert);
    if (work.step.has_experts(i))
      set_state(work.times.units[static_cast<std::size_t>(work.step.experts_of(i))],
                parameters.expert);
  }
  work.hop = {costs.hop};
  return work;
}

// Seconds of the passes; the rest of the ops is priced one by one.
UnitWorkload measured_units(const SimulateRequest& request, const model::Model& model,
                            const pipeline::Shape& shape) {
  UnitWorkload work;
  work.step = step_of(request, model, shape);
  const auto& passes = request.calibration->calibration.passes;
  for (int i = 0; i < model.num_units(); ++i) {
    const std::string kind(to_text(model.unit(i).kind));
    const auto time = [&](const char* letter) {
      const auto found = passes.find(kind + letter);
      return found == passes.end() ? Seconds{} : found->second.time;
    };
    cost::UnitTimes unit;
    unit.forward = time(".F");
    unit.weight_grad = time(".W");
    const bool is_split = passes.contains(kind + ".I");
    unit.input_grad = is_split ? time(".I") : time(".B");
    work.times.units.push_back(unit);
  }
  work.times.units.resize(static_cast<std::size_t>(work.step.num_segments()));
  return work;
}

// Equal stages, timed whole.
StageWorkload stage_workload(const SimulateRequest& request, const pipeline::Shape& shape) {
  const StepCosts& costs = request.costs;
  const double scale = decimal_scale(costs), parts = shape.chunks;
  const auto all = [&](double cost) { return in_ticks(cost, scale, parts); };
  return {sim::even_costs(shape, all(costs.forward), all(costs.input_grad), all(costs.weight_grad),
                          all(costs.hop)),
          scale * parts};
}

UnitWorkload unit_workload(const SimulateRequest& request, const model::Model* model,
                           const pipeline::Shape& shape) {
  LS_CHECK(request.step || (request.spec && model != nullptr), "nothing to lower");
  if (request.step) return blocks(request, shape);
  return request.calibration ? measured_units(request, *model, shape)
                             : units_of(request, *model, shape);
}

StageWorkload stages_of(const SimulateRequest& request, const model::Model* model,
                        const pipeline::Shape& shape) {
  return request.is_lowered() ? unit_workload(request, model, shape).stages()
                              : stage_workload(request, shape);
}

// The ops priced by the calibration of the request where there is one, else by `work`. Refuses a
// program that the calibration does not cover.
Result<sim::Simulation> simulated(const SimulateRequest& request, const model::Model* model,
                                  const UnitWorkload& work, const program::Program& program) {
  if (!request.calibration)
    return sim::simulate(program, [&](Coord, const program::Op& op) { return work.times.time(op); },
                         {.latency = [&](Coord, const program::Op&) { return work.hop; }});
  Result<sim::Simulation> made =
      planner::simulate_measured(program, *request.spec, *model, *request.calibration);
  const bool is_unknown = !made.ok() && made.error().code == Code::kConflict;
  if (!is_unknown || request.calibrate.empty()) return made;
  return Error{made.error().code, made.error().message,
               join_parts("`", request.calibrate, "` measures it, on ",
                          counted(request.spec->world(), "core"), " or more")};
}

Seconds in_units(Seconds time, double ticks) { return {time.value / ticks}; }

// `makespan` and the rest are in ticks, so that differences are rounded once; `total` is the work
// of all pipeline ranks.
void set_times(Timed& timed, Seconds makespan, Seconds work, Seconds without_barrier, Seconds total,
               double ticks) {
  timed.makespan = in_units(makespan, ticks);
  timed.work = in_units(work, ticks);
  timed.bubble = in_units(makespan - work, ticks);
  timed.bubble_without_barrier = in_units(without_barrier, ticks);
  const int coords = timed.schedule.shape().coords;
  timed.idle_share = makespan.value > 0 ? 1 - total.value / (makespan.value * coords) : 0;
}

std::vector<double> in_microbatches(const std::vector<int>& held, int chunks) {
  std::vector<double> peak;
  for (const int stages : held) peak.push_back(static_cast<double>(stages) / chunks);
  return peak;
}

// Stage activations that make up at most so many of microbatches.
int held_under(double cap, int chunks) { return static_cast<int>(std::floor(cap * chunks)); }

// Without a cap, what 1f1b holds.
double auto_cap(const SimulateRequest& request) {
  return request.memory_cap.value_or(std::min(request.coords, request.microbatches));
}

sim::StageCosts in_ticks(sim::StageCosts costs, double factor) {
  for (auto* times : {&costs.forward, &costs.input_grad, &costs.weight_grad})
    for (Seconds& time : *times) time = time * factor;
  costs.hop = costs.hop * factor;
  return costs;
}

// Why bytes of a run's values are not known; empty when they are.
std::string why_no_bytes(const spec::Spec& spec) {
  const mesh::Degrees& d = spec.layout.degrees;
  if (d.ep > 1) return join_parts("not known with ep = ", d.ep);
  if (spec.model.moe.experts > 0 && d.etp != d.tp && (!spec.layout.sp || d.tp % d.etp != 0))
    return join_parts("not known with etp = ", d.etp, " beside tp = ", d.tp);
  const auto known = model::check_unit_bytes(spec.model);
  return known.ok() ? "" : "not known: " + known.error().message;
}

Result<Schedule> order_of(const SimulateRequest& request, const ScheduleCandidate& candidate) {
  if (candidate.kind == ScheduleCandidate::Kind::kFile) return *candidate.order;
  const pipeline::Shape shape = {request.coords, *candidate.chunks, request.microbatches};
  if (request.group && candidate.row.build_grouped != nullptr)
    return candidate.row.build_grouped(shape, *request.group);
  return candidate.row.build(shape);
}

// What cannot be made to fit under the cap stays as it is, above it.
Result<Schedule> refilled(const SimulateRequest& request, const Schedule& order,
                          const sim::StageCosts& costs) {
  const int cap = request.memory_cap ? held_under(*request.memory_cap, order.shape().chunks)
                                     : simulate_stages(order, costs).max_peak();
  Result<Schedule> refilled = pipeline::refill(order, costs, cap);
  if (!refilled.ok() && request.memory_cap) return order;
  return refilled;
}

// The rules of a run file, of which the number of chunks was not known to them.
Result<void> check_layers(const SimulateRequest& request, const pipeline::Shape& shape) {
  if (!request.spec) return {};
  spec::Request asked;
  asked.model = &request.spec->model;
  asked.degrees = request.spec->layout.degrees;
  asked.chunks = shape.chunks;
  for (const spec::Contradiction& found : contradictions(asked))
    if (!found.is_warning) return found.error;
  return {};
}

Timed time_stages(const SimulateRequest& request, const Schedule& order) {
  const StageWorkload work = stage_workload(request, order.shape());
  const sim::StageTimes times = simulate_stages(order, work.costs);
  Timed timed{.schedule = order, .figure = draw::figure_of(order, times)};
  draw::divide_times(timed.figure, work.ticks);
  timed.figure.time_unit = "";
  Seconds total;  // of all pipeline ranks
  for (int stage = 0; stage < order.shape().stages(); ++stage)
    total +=
        (work.costs.forward[stage] + work.costs.input_grad[stage] + work.costs.weight_grad[stage]) *
        order.shape().microbatches;
  set_times(timed, times.makespan, times.work, times.bubble_without_barrier(), total, work.ticks);
  timed.peak = in_microbatches(times.peak, order.shape().chunks);
  return timed;
}

// Compares with the measured run that the request names.
Result<sim::Residuals> compared(const SimulateRequest& request, const program::Program& program,
                                const sim::Simulation& simulation) {
  const auto& [name, timeline] = *request.against;
  const spec::Spec& spec = *request.spec;
  LS_TRY(check_timeline(timeline, program,
                        cost::fingerprint(spec.model, spec::step_sizes(spec).unit),
                        to_text(spec.layout), name));
  return residuals(program, simulation, timeline.typical());
}

}  // namespace

int Timed::peak_coord() const {
  return static_cast<int>(std::ranges::max_element(peak) - peak.begin());
}

bool Timed::splits_backward() const {
  for (int coord = 0; coord < schedule.shape().coords; ++coord)
    for (const pipeline::Pass& pass : schedule.passes({coord}))
      if (pass.kind == pipeline::PassKind::kWeightGrad) return true;
  return false;
}

Result<Timing> Timing::create(const SimulateRequest& request) {
  Timing timing(request);
  if (!request.spec) return timing;
  timing.model_ = LS_TRY(model::describe(request.spec->model));
  timing.no_bytes_ = why_no_bytes(*request.spec);
  if (request.calibration && !timing.no_bytes_.empty())
    return Error{Code::kNotRunYet,
                 join_parts("--calibration ", request.calibration->name,
                            ": sizes of collectives are ", timing.no_bytes_),
                 "leave --calibration out"};
  return timing;
}

StepCosts Timing::costs() const { return costs_of(request_, model()); }

Result<Timed> Timing::searched(const ScheduleCandidate& candidate) const {
  pipeline::AutoRequest search{request_.coords, request_.microbatches, {}};
  std::vector<StageWorkload> works;
  for (const int chunks : candidate.chunks ? std::vector{*candidate.chunks} : std::vector{1, 2}) {
    const pipeline::Shape shape = {request_.coords, chunks, request_.microbatches};
    LS_TRY(check_shape(shape));
    if (auto enough = check_layers(request_, shape); !enough.ok()) {
      if (chunks == 1 || candidate.chunks) return enough.error();
      continue;
    }
    works.push_back(stages_of(request_, model(), shape));
    search.options.push_back({chunks, {}, held_under(auto_cap(request_), chunks)});
  }
  // Lengths of different options are compared, so they must be in one tick.
  const double ticks = works.back().ticks;
  for (std::size_t i = 0; i < works.size(); ++i)
    search.options[i].costs = in_ticks(std::move(works[i].costs), ticks / works[i].ticks);
  const pipeline::AutoChoice choice = LS_TRY(pipeline::auto_schedule(search));
  Timed found = LS_TRY(timed(choice.schedule));
  found.origin = join_parts(choice.origin, ", under a cap of ", strf("%g", auto_cap(request_)));
  if (!request_.is_lowered()) found.lower_bound = in_units(choice.lower_bound, ticks);
  return found;
}

Result<Timed> Timing::timed(const Schedule& order) const {
  return request_.is_lowered() ? time_program(order) : time_stages(request_, order);
}

Result<Timed> Timing::given(const ScheduleCandidate& candidate) const {
  Schedule order = LS_TRY(order_of(request_, candidate));
  if (request_.refill)
    order = LS_TRY(refilled(request_, order, stages_of(request_, model(), order.shape()).costs));
  return timed(order);
}

Result<Timed> Timing::time(const ScheduleCandidate& candidate) const {
  const bool is_auto = candidate.kind == ScheduleCandidate::Kind::kAuto;
  Timed made = LS_TRY(is_auto ? searched(candidate) : given(candidate));
  made.name = candidate.name;
  made.is_run = candidate.kind == ScheduleCandidate::Kind::kNamed && !request_.refill;
  made.figure.title = candidate.name + (request_.refill && !is_auto ? ", refilled" : "");
  return made;
}

Result<Timed> Timing::time_program(const Schedule& order) const {
  LS_TRY(check_layers(request_, order.shape()));
  const UnitWorkload work = unit_workload(request_, model(), order.shape());
  const program::Program program = LS_TRY(lower(order, work.step));
  const sim::Simulation simulation = LS_TRY(simulated(request_, model(), work, program));
  constexpr OpKind kCompute[] = {OpKind::kForward, OpKind::kRecompute, OpKind::kBackward,
                                 OpKind::kInputGrad, OpKind::kWeightGrad};
  Seconds busiest, total, longest;
  for (std::size_t c = 0; c < simulation.coords.size(); ++c) {
    Seconds sum, first{-1}, last;
    for (const program::TimedOp& op : simulation.coords[c]) {
      if (std::ranges::find(kCompute, program.lists[c][op.op].kind) == std::end(kCompute)) continue;
      if (first < Seconds{}) first = op.start;
      last = op.end;
      sum += op.end - op.start;
    }
    busiest = std::max(busiest, sum);
    longest = std::max(longest, last - first);
    total += sum;
  }
  Timed timed{.schedule = order, .figure = draw::figure_of(program, simulation)};
  set_times(timed, simulation.makespan, busiest, longest - busiest, total, work.ticks);
  if (work.step.recompute.empty())
    timed.peak =
        in_microbatches(simulate_stages(order, work.stages().costs).peak, order.shape().chunks);
  else
    for (const draw::Band& band : timed.figure.bands) timed.peak.push_back(draw::peak(band));
  if (request_.spec && no_bytes_.empty()) {
    const program::ProgramBytes bytes =
        cost::program_bytes(*model_, program.step, spec::step_sizes(*request_.spec));
    for (int coord = 0; coord < program.step.shape.coords; ++coord)
      timed.peak_bytes.push_back(walk(program, {coord}, bytes).peak);
    timed.figure = draw::figure_of(program, simulation, bytes);
  }
  draw::divide_times(timed.figure, work.ticks);
  if (!request_.calibration) timed.figure.time_unit = "";
  if (request_.against) timed.residuals = LS_TRY(compared(request_, program, simulation));
  return timed;
}

std::optional<Timed> Timing::fastest_that_fits() const {
  std::optional<Timed> best;
  for (const pipeline::CatalogRow& row : pipeline::catalog()) {
    const int chunks = row.chunks > 0 ? row.chunks : 2;
    auto timed = time({.name = std::string(row.name), .row = row, .chunks = chunks});
    if (!timed.ok() || timed->max_peak() > *request_.memory_cap) continue;
    if (!best || timed->makespan < best->makespan) best = *std::move(timed);
  }
  return best;
}

}  // namespace lockstep::cli
