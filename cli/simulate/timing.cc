#include "cli/simulate/timing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/simulate/workload.h"
#include "lockstep/base/check.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/draw/figure_of.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/pipeline/search/auto_schedule.h"
#include "lockstep/pipeline/search/refill.h"
#include "lockstep/program/lower.h"
#include "lockstep/spec/contradictions.h"
#include "lockstep/spec/step_sizes.h"

namespace lockstep::cli {
namespace {

using pipeline::Pass;
using pipeline::PassKind;
using pipeline::Schedule;
using program::OpKind;

Seconds in_units(Seconds time, double ticks) { return {time.value / ticks}; }

void to_units(sim::StageTimes& times, double ticks) {
  for (auto& coord : times.coords)
    for (sim::TimedPass& pass : coord)
      pass = {in_units(pass.start, ticks), in_units(pass.end, ticks)};
  times.makespan = in_units(times.makespan, ticks);
  times.work = in_units(times.work, ticks);
}

void to_units(sim::Simulation& simulation, double ticks) {
  for (auto* timelines : {&simulation.coords, &simulation.lanes})
    for (program::Timeline& timeline : *timelines)
      for (program::TimedOp& op : timeline)
        op = {op.op, in_units(op.start, ticks), in_units(op.end, ticks)};
  for (Seconds& waited : simulation.waited) waited = in_units(waited, ticks);
  simulation.makespan = in_units(simulation.makespan, ticks);
}

bool is_compute(OpKind kind) {
  return kind == OpKind::kForward || kind == OpKind::kRecompute || kind == OpKind::kBackward ||
         kind == OpKind::kInputGrad || kind == OpKind::kWeightGrad;
}

double idle_share(Seconds total_work, Seconds makespan, int coords) {
  return makespan.value > 0 ? 1 - total_work.value / (makespan.value * coords) : 0;
}

std::vector<double> in_microbatches(const std::vector<int>& held, int chunks) {
  std::vector<double> peak;
  for (const int stages : held) peak.push_back(static_cast<double>(stages) / chunks);
  return peak;
}

// Of all coordinates.
Seconds total_work(const Schedule& order, const sim::StageCosts& costs) {
  Seconds total;
  for (int stage = 0; stage < order.shape().stages(); ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    total += (costs.forward[s] + costs.input_grad[s] + costs.weight_grad[s]) *
             order.shape().microbatches;
  }
  return total;
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
  for (const auto& [name, degree] : {std::pair{"cp", d.cp}, {"ep", d.ep}, {"etp", d.etp}})
    if (degree > 1) return join_parts("not known with ", name, " = ", degree);
  if (spec.model.vocab % d.tp != 0)
    return join_parts("not known with tp = ", d.tp, ", which does not divide the vocabulary of ",
                      spec.model.vocab);
  const auto known = model::check_unit_bytes(spec.model, spec.batch.seq);
  return known.ok() ? "" : "not known: " + known.error().message;
}

}  // namespace

int Timed::peak_coord() const {
  return static_cast<int>(std::ranges::max_element(peak) - peak.begin());
}

bool Timed::splits_backward() const {
  for (int coord = 0; coord < schedule.shape().coords; ++coord)
    for (const Pass& pass : schedule.passes({coord}))
      if (pass.kind == PassKind::kWeightGrad) return true;
  return false;
}

Result<Timing> Timing::create(const SimulateRequest& request) {
  Timing timing(request);
  if (!request.spec) return timing;
  Result<model::Model> model = model::describe(request.spec->model);
  if (!model.ok()) return model.error();
  timing.model_ = *std::move(model);
  timing.no_bytes_ = why_no_bytes(*request.spec);
  if (request.calibration && !timing.no_bytes_.empty())
    return Error{Code::kNotRunYet,
                 join_parts("--calibration ", request.calibration->name,
                            ": sizes of collectives are ", timing.no_bytes_),
                 "leave --calibration out"};
  return timing;
}

StepCosts Timing::costs() const { return costs_of(request_, model()); }

Result<Schedule> Timing::order_of(const Entrant& entrant) const {
  if (entrant.kind == Entrant::Kind::kFile) return *entrant.order;
  const pipeline::Shape shape = {request_.coords, *entrant.chunks, request_.microbatches};
  if (request_.group && entrant.row.build_grouped != nullptr)
    return entrant.row.build_grouped(shape, *request_.group);
  return entrant.row.build(shape);
}

StageWorkload Timing::stages_of(const pipeline::Shape& shape) const {
  const bool is_whole = !request_.spec && !request_.step;
  return is_whole ? stage_workload(request_, shape)
                  : unit_workload(request_, model(), shape).stages();
}

Result<Schedule> Timing::refilled(const Schedule& order) const {
  const StageWorkload work = stages_of(order.shape());
  const int cap = request_.memory_cap ? held_under(*request_.memory_cap, order.shape().chunks)
                                      : simulate_stages(order, work.costs).max_peak();
  Result<Schedule> refilled = pipeline::refill(order, work.costs, cap);
  if (!refilled.ok() && request_.memory_cap) return order;
  return refilled;
}

Result<Timed> Timing::searched(const Entrant& entrant) const {
  pipeline::AutoRequest search{request_.coords, request_.microbatches, {}};
  std::vector<StageWorkload> works;
  for (const int chunks : entrant.chunks ? std::vector{*entrant.chunks} : std::vector{1, 2}) {
    const pipeline::Shape shape = {request_.coords, chunks, request_.microbatches};
    if (auto usable = check_shape(shape); !usable.ok()) return usable.error();
    if (auto enough = check_layers(shape); !enough.ok()) {
      if (chunks == 1 || entrant.chunks) return enough.error();
      continue;
    }
    works.push_back(stages_of(shape));
    search.options.push_back({chunks, {}, held_under(auto_cap(request_), chunks)});
  }
  // Lengths of different options are compared, so they must be in one tick.
  const double ticks = works.back().ticks;
  for (std::size_t i = 0; i < works.size(); ++i)
    search.options[i].costs = in_ticks(std::move(works[i].costs), ticks / works[i].ticks);
  const Result<pipeline::AutoChoice> choice = pipeline::auto_schedule(search);
  if (!choice.ok()) return choice.error();
  Result<Timed> found = timed(choice->schedule);
  if (!found.ok()) return found;
  found->origin = join_parts(choice->origin, ", under a cap of ", strf("%g", auto_cap(request_)));
  if (!request_.spec && !request_.step) found->lower_bound = in_units(choice->lower_bound, ticks);
  return found;
}

// The rules of a run file, of which the number of chunks was not known to them.
Result<void> Timing::check_layers(const pipeline::Shape& shape) const {
  if (!request_.spec) return {};
  spec::Request asked;
  asked.model = &request_.spec->model;
  asked.degrees = request_.spec->layout.degrees;
  asked.chunks = shape.chunks;
  for (const spec::Contradiction& found : contradictions(asked))
    if (!found.is_warning) return found.error;
  return {};
}

Result<Timed> Timing::timed(Schedule order) const {
  const bool is_whole = !request_.spec && !request_.step;
  if (is_whole) return time_stages(std::move(order));
  return time_program(std::move(order));
}

Result<Timed> Timing::given(const Entrant& entrant) const {
  Result<Schedule> order = order_of(entrant);
  if (!order.ok()) return order.error();
  if (request_.refill) order = refilled(*order);
  if (!order.ok()) return order.error();
  return timed(*std::move(order));
}

Result<Timed> Timing::time(const Entrant& entrant) const {
  const bool is_auto = entrant.kind == Entrant::Kind::kAuto;
  Result<Timed> made = is_auto ? searched(entrant) : given(entrant);
  if (!made.ok()) return made.error();
  made->name = entrant.name;
  made->is_run = entrant.kind == Entrant::Kind::kNamed && !request_.refill;
  made->figure.title = entrant.name + (request_.refill && !is_auto ? ", refilled" : "");
  return made;
}

Timed Timing::time_stages(Schedule order) const {
  const StageWorkload work = stage_workload(request_, order.shape());
  sim::StageTimes times = simulate_stages(order, work.costs);
  const Seconds bubble = times.bubble(), without = times.bubble_without_barrier();
  const double idle =
      idle_share(total_work(order, work.costs), times.makespan, order.shape().coords);
  to_units(times, work.ticks);
  Timed timed{.schedule = order, .figure = draw::figure_of(order, times)};
  timed.figure.time_unit = "";
  timed.makespan = times.makespan;
  timed.work = times.work;
  timed.bubble = in_units(bubble, work.ticks);
  timed.bubble_without_barrier = in_units(without, work.ticks);
  timed.idle_share = idle;
  timed.peak = in_microbatches(times.peak, order.shape().chunks);
  return timed;
}

Result<Timed> Timing::time_program(Schedule order) const {
  if (auto enough = check_layers(order.shape()); !enough.ok()) return enough.error();
  const UnitWorkload work = unit_workload(request_, model(), order.shape());
  const Result<program::Program> program = lower(order, work.step);
  if (!program.ok()) return program.error();
  const Result<StepPricing> pricing = price(request_, model(), work, *program);
  if (!pricing.ok()) return pricing.error();
  Result<sim::Simulation> made = sim::simulate(*program, pricing->cost, pricing->conditions);
  if (!made.ok()) return made.error();
  sim::Simulation& simulation = *made;
  Seconds busiest, total, longest;
  for (std::size_t c = 0; c < simulation.coords.size(); ++c) {
    Seconds sum, first{-1}, last;
    for (const program::TimedOp& op : simulation.coords[c]) {
      if (!is_compute(program->lists[c][static_cast<std::size_t>(op.op)].kind)) continue;
      if (first < Seconds{}) first = op.start;
      last = op.end;
      sum += op.end - op.start;
    }
    busiest = std::max(busiest, sum);
    longest = std::max(longest, last - first);
    total += sum;
  }
  const Seconds bubble = simulation.makespan - busiest;
  const double idle = idle_share(total, simulation.makespan, order.shape().coords);
  const sim::StageTimes times = simulate_stages(order, work.stages().costs);
  to_units(simulation, work.ticks);
  Timed timed{.schedule = order, .figure = draw::figure_of(*program, simulation)};
  timed.makespan = simulation.makespan;
  timed.work = in_units(busiest, work.ticks);
  timed.bubble = in_units(bubble, work.ticks);
  timed.bubble_without_barrier = in_units(longest - busiest, work.ticks);
  timed.idle_share = idle;
  timed.peak = in_microbatches(times.peak, order.shape().chunks);
  if (!work.step.recompute.empty()) {
    timed.peak.clear();
    for (const draw::Band& band : timed.figure.bands) timed.peak.push_back(draw::peak(band));
  }
  if (request_.spec && no_bytes_.empty()) add_bytes(*program, simulation, timed);
  if (!request_.calibration) timed.figure.time_unit = "";
  if (request_.against)
    if (auto compared = compare(*program, simulation, timed); !compared.ok())
      return compared.error();
  return timed;
}

Result<void> Timing::compare(const program::Program& program, const sim::Simulation& simulation,
                             Timed& timed) const {
  const auto& [name, timeline] = *request_.against;
  const spec::Spec& spec = *request_.spec;
  const auto fits =
      check_timeline(timeline, program, cost::fingerprint(spec.model, spec::step_sizes(spec).unit),
                     to_text(spec.layout), name);
  if (!fits.ok()) return fits.error();
  timed.residuals = residuals(program, simulation, timeline.typical());
  return {};
}

void Timing::add_bytes(const program::Program& program, const sim::Simulation& simulation,
                       Timed& timed) const {
  const program::ProgramBytes bytes =
      cost::program_bytes(*model_, program.step, spec::step_sizes(*request_.spec));
  for (int coord = 0; coord < program.step.shape.coords; ++coord)
    timed.peak_bytes.push_back(walk(program, {coord}, bytes).peak);
  timed.figure = draw::figure_of(program, simulation, bytes);
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
