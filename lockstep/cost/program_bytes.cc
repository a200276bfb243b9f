#include "lockstep/cost/program_bytes.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/model/state_bytes.h"
#include "lockstep/parts/op_pass.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::cost {
namespace {

using model::UnitKind;
using parts::UnitPasses;
using program::OpKind;
using program::UnitBytes;

constexpr std::int64_t kTokenBytes = 8;  // i64

// `main_grad`: of all segments of the unit.
void add_passes(const model::Unit& unit, const UnitPasses& passes, const program::StepShape& step,
                int index, std::int64_t main_grad, UnitBytes& bytes) {
  const auto surge = [&](OpKind kind, bool is_first = false) {
    const program::Op op = {.kind = kind, .unit = index, .microbatch = is_first ? 0 : 1};
    return extra(passes.events(*parts::pass_of(step, unit, op)), is_first ? main_grad : 0);
  };
  bytes.stash = total(passes.stash());
  bytes.weight_work = total(passes.work());
  bytes.forward = surge(OpKind::kForward);
  if (unit.kind == UnitKind::kBlock) bytes.recompute = surge(OpKind::kRecompute);
  if (unit.kind != UnitKind::kHead) {
    bytes.input_grad = surge(OpKind::kInputGrad);
    bytes.weight_grad = surge(OpKind::kWeightGrad);
    bytes.first_weight_grad = surge(OpKind::kWeightGrad, true);
  }
  bytes.backward = surge(OpKind::kBackward);
  bytes.first_backward = surge(OpKind::kBackward, true);
}

// Of each pipeline rank: a microbatch's tokens where they are used, and what is always live.
void add_constants(const model::Model& model, const program::StepShape& step,
                   const model::UnitSizes& sizes, program::ProgramBytes& all) {
  // Tokens that each expert met, and what is added to its score.
  const std::int64_t expert_bytes =
      sizes.kernels == model::Kernels::kDevice
          ? step.all_experts() * (model.config.moe.router_bias ? 12 : 8)
          : 0;
  for (int coord = 0; coord < step.shape.coords; ++coord) {
    const Coord at{coord};
    int uses = 0;
    bool has_block = false;
    for (int unit = 0; unit < step.units(); ++unit) {
      if (!step.holds(at, unit)) continue;
      const bool is_end = unit == 0 || unit == step.head();
      uses += is_end ? 1 : 0;
      has_block = has_block || !is_end;
    }
    all.tokens.push_back(uses * sizes.tokens() * kTokenBytes);
    all.constants.push_back((has_block ? rope_bytes(model.config, sizes) : 0) + sum_bytes(sizes) +
                            expert_bytes);
  }
}

}  // namespace

StateBytes state_bytes(const model::FlatLayout& flat, int zero, DType dtype, std::int64_t shards) {
  if (zero == 0) shards = 1;
  const model::StateWidths widths = model::adam_widths(dtype, wide_type(dtype));
  StateBytes bytes;
  bytes.elements = flat.padded(shards);
  bytes.owned = bytes.elements / shards;
  bytes.param = bytes.elements * static_cast<std::int64_t>(widths.weights);
  bytes.main_grad = bytes.elements * static_cast<std::int64_t>(widths.grads);
  bytes.param_shard = bytes.owned * static_cast<std::int64_t>(widths.weights);
  bytes.grad_shard = bytes.owned * static_cast<std::int64_t>(widths.grads);
  bytes.optimizer = bytes.owned * static_cast<std::int64_t>(widths.optimizer);
  return bytes;
}

program::ProgramBytes program_bytes(const model::Model& model, const program::StepShape& step,
                                    const StepSizes& sizes, const model::RowsMetBy& rows_met) {
  LS_CHECK(step.units() == model.num_units(), "a step of ", step.units(), " units for a model of ",
           model.num_units());
  const std::vector<model::FlatLayout> layouts =
      model::flat_layouts(model, sizes.unit.tp, sizes.unit.ep, sizes.unit.etp);
  std::vector<UnitPasses> passes;  // by distinct unit
  for (const model::Unit& unit : model.distinct)
    passes.emplace_back(model.config, unit, sizes.unit);
  program::ProgramBytes all;
  all.units.resize(static_cast<std::size_t>(step.num_segments()));
  for (const int segment : model.segments()) {
    UnitBytes& bytes = all.units[static_cast<std::size_t>(segment)];
    const StateBytes states = state_bytes(layouts[model.layout_of(segment)], step.zero,
                                          sizes.unit.dtype, sizes.shards_of(step, segment));
    bytes.param = states.param;
    bytes.param_shard = states.param_shard;
    bytes.main_grad = states.main_grad;
    bytes.grad_shard = states.grad_shard;
    bytes.optimizer = segment == step.head() && step.shares_state() ? 0 : states.optimizer;
  }
  for (int unit = 0; unit < step.units(); ++unit) {
    const auto kind = static_cast<std::size_t>(model.order[static_cast<std::size_t>(unit)]);
    UnitBytes& bytes = all.units[static_cast<std::size_t>(unit)];
    std::int64_t main_grads = 0, largest = 0;
    step.for_each_segment(unit, [&](int segment) {
      const std::int64_t one = all.units[static_cast<std::size_t>(segment)].main_grad;
      main_grads += one;
      largest = std::max(largest, one);
    });
    bytes.act = boundary_bytes(model.config, sizes.unit);
    bytes.checkpoint = bytes.act;
    if (sizes.looks_at_noise && sizes.unit.cp > 1) {
      bytes.noise = largest;
    } else if (sizes.looks_at_noise && step.is_partial(unit)) {
      std::int64_t summed = layouts[kind].partial(sizes.unit.sequence_parallel).size();
      for (const model::FlatRange& copied : layouts[kind].copied) summed += copied.size();
      bytes.noise = summed * sizes.unit.wide();
    }
    add_passes(model.unit(unit), passes[kind], step, unit, main_grads, bytes);
    for (int mb = 0; !rows_met.empty() && mb < step.shape.microbatches; ++mb) {
      const auto rows = rows_met.find({unit, mb});
      if (rows == rows_met.end()) continue;
      UnitBytes& met = all.of_microbatch[{unit, mb}] = bytes;
      add_passes(model.unit(unit), passes[kind].where_met(rows->second), step, unit, main_grads,
                 met);
    }
  }
  add_constants(model, step, sizes.unit, all);
  return all;
}

}  // namespace lockstep::cost
