#include "cli/simulate/workload.h"

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/cost/measured/calibrated_prices.h"
#include "lockstep/model/flops.h"
#include "lockstep/program/lower.h"
#include "lockstep/spec/step.h"
#include "lockstep/spec/step_sizes.h"

namespace lockstep::cli {
namespace {

using program::OpKind;

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

UnitFlops flops_of(const model::Unit& unit, std::int64_t seq) {
  const model::TokenFlops flops = flops_per_token(unit, seq, model::Mask::kCausal);
  return {flops.forward().value, flops.matmul.value + 2 * flops.attention.value,
          flops.matmul.value};
}

UnitFlops flops_of(const model::Model& model, std::int64_t seq) {
  UnitFlops sum;
  for (int i = 0; i < model.num_units(); ++i) {
    const UnitFlops one = flops_of(model.unit(i), seq);
    sum.forward += one.forward;
    sum.input_grad += one.input_grad;
    sum.weight_grad += one.weight_grad;
  }
  return sum;
}

UnitWorkload blocks(const SimulateRequest& request, const pipeline::Shape& shape) {
  const PlainStep& plain = *request.step;
  UnitWorkload work;
  const int units = shape.stages() * plain.layers + 2;
  work.step.shape = shape;
  work.step.stage_begin = program::split_units(units, shape.stages());
  work.step.zero = plain.zero;
  work.step.period = spec::default_reduce(plain.zero);
  work.units.resize(static_cast<std::size_t>(units));
  const StepCosts& costs = request.costs;
  const double scale = decimal_scale(costs), parts = shape.chunks * plain.layers;
  UnitTimes block;
  block.forward = in_ticks(costs.forward, scale, 1);
  block.input_grad = in_ticks(costs.input_grad, scale, 1);
  block.weight_grad = in_ticks(costs.weight_grad, scale, 1);
  block.gather = in_ticks(costs.gather, scale, 1);
  block.reduce = in_ticks(costs.reduce, scale, 1);
  for (int i = 1; i + 1 < units; ++i) work.units[static_cast<std::size_t>(i)] = block;
  if (plain.recompute) {
    work.step.recompute.assign(work.units.size(), true);
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

UnitWorkload units_of(const SimulateRequest& request, const model::Model& model,
                      const pipeline::Shape& shape) {
  const spec::Spec& spec = *request.spec;
  UnitWorkload work;
  work.step = step_of(request, model, shape);
  const StepCosts costs = costs_of(request, &model);
  const UnitFlops all = flops_of(model, spec.batch.seq);
  const mesh::Degrees& d = spec.layout.degrees;
  const auto shards = static_cast<double>(d.dp_shard.value_or(d.dp));
  const auto share = [&](double cost, double part, double whole) {
    return Seconds{whole > 0 ? cost * shape.coords * part / whole : 0};
  };
  for (int i = 0; i < model.num_units(); ++i) {
    const UnitFlops one = flops_of(model.unit(i), spec.batch.seq);
    const auto parameters = static_cast<double>(count(model.unit(i)).total);
    const auto all_parameters = static_cast<double>(count(model).total);
    UnitTimes unit;
    unit.forward = share(costs.forward, one.forward, all.forward);
    unit.input_grad = share(costs.input_grad, one.input_grad, all.input_grad);
    unit.weight_grad = share(costs.weight_grad, one.weight_grad, all.weight_grad);
    unit.gather = share(costs.gather, parameters, all_parameters);
    unit.reduce = share(costs.reduce, parameters, all_parameters);
    unit.reduce_across = {unit.reduce.value / shards};
    work.units.push_back(unit);
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
    UnitTimes unit;
    unit.forward = time(".F");
    unit.weight_grad = time(".W");
    const bool is_split = passes.contains(kind + ".I");
    unit.input_grad = is_split ? time(".I") : time(".B");
    work.units.push_back(unit);
  }
  return work;
}

// What a calibration's prices refer to, alive as long as they are.
struct Priced {
  mesh::Mesh mesh;
  cost::StepSizes sizes;
  std::optional<cost::CalibratedPrices> prices;
};

}  // namespace

Result<StepPricing> price(const SimulateRequest& request, const model::Model* model,
                          const UnitWorkload& work, const program::Program& program) {
  if (!request.calibration)
    return StepPricing{[&work](Coord, const program::Op& op) { return work.time(op); },
                       {.latency = [&work](Coord, const program::Op&) { return work.hop; }}};
  const spec::Spec& spec = *request.spec;
  Result<mesh::Mesh> mesh = mesh::Mesh::create(spec.layout.degrees, spec.layout.order);
  if (!mesh.ok()) return mesh.error();
  const auto priced =
      std::make_shared<Priced>(Priced{*std::move(mesh), spec::step_sizes(spec), {}});
  const auto& [name, calibration] = *request.calibration;
  Result<cost::CalibratedPrices> prices = cost::CalibratedPrices::create(
      calibration, program, *model, priced->sizes, priced->mesh, name);
  if (!prices.ok() && !request.calibrate.empty())
    return Error{prices.error().code, prices.error().message,
                 join_parts("`", request.calibrate, "` measures it, on ",
                            counted(priced->mesh.world(), "core"), " or more")};
  if (!prices.ok()) return prices.error();
  priced->prices.emplace(*std::move(prices));
  StepPricing pricing;
  pricing.cost = [priced](Coord c, const program::Op& op) { return priced->prices->time(c, op); };
  pricing.conditions.host = [priced](Coord c, const program::Op& op) {
    return priced->prices->host(c, op);
  };
  pricing.conditions.slowdown = {calibration.slowdown, calibration.slowdown};
  return pricing;
}

Seconds UnitWorkload::time(const program::Op& op) const {
  if (op.unit < 0) return {};
  const UnitTimes& unit = units[static_cast<std::size_t>(op.unit)];
  switch (op.kind) {
    case OpKind::kForward:
    case OpKind::kRecompute:
      return unit.forward;
    case OpKind::kBackward:
      return unit.input_grad + unit.weight_grad;
    case OpKind::kInputGrad:
      return unit.input_grad;
    case OpKind::kWeightGrad:
      return unit.weight_grad;
    case OpKind::kGather:
    case OpKind::kPublish:
      return unit.gather;
    case OpKind::kReduce:
      return unit.reduce;
    case OpKind::kReduceAcross:
      return unit.reduce_across;
    default:
      return {};
  }
}

StageWorkload UnitWorkload::stages() const {
  StageWorkload work{{}, ticks};
  work.costs.hop = hop;
  for (int stage = 0; stage < step.shape.stages(); ++stage) {
    Seconds forward, input_grad, weight_grad;
    const auto begin = step.stage_begin[static_cast<std::size_t>(stage)];
    const auto end = step.stage_begin[static_cast<std::size_t>(stage) + 1];
    for (std::int32_t i = begin; i < end; ++i) {
      const UnitTimes& unit = units[static_cast<std::size_t>(i)];
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

StepCosts costs_of(const SimulateRequest& request, const model::Model* model) {
  if (model == nullptr || request.has_costs) return request.costs;
  const UnitFlops all = flops_of(*model, request.spec->batch.seq);
  StepCosts costs = request.costs;
  costs.forward = 1;
  costs.input_grad = all.input_grad / all.forward;
  costs.weight_grad = all.weight_grad / all.forward;
  return costs;
}

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

}  // namespace lockstep::cli
