#include <utility>

#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

void append_units(const StepShape& step, const pipeline::Pass& pass, std::vector<Op>& compute) {
  const int stage = pass.stage.value, mb = pass.microbatch.value;
  const std::int32_t first = step.stage_begin[stage], last = step.stage_begin[stage + 1] - 1;
  const OpKind kind = op_kind(pass.kind);
  const auto append = [&](std::int32_t unit) {
    const bool is_split = kind == OpKind::kInputGrad || kind == OpKind::kWeightGrad;
    if (unit == step.head() && kind == OpKind::kWeightGrad) return;
    if ((kind == OpKind::kBackward || kind == OpKind::kInputGrad) && step.recomputes(unit))
      compute.push_back({.kind = OpKind::kRecompute, .unit = unit, .microbatch = mb});
    compute.push_back({.kind = unit == step.head() && is_split ? OpKind::kBackward : kind,
                       .unit = unit,
                       .microbatch = mb});
  };
  if (kind == OpKind::kForward)
    for (std::int32_t unit = first; unit <= last; ++unit) append(unit);
  else
    for (std::int32_t unit = last; unit >= first; --unit) append(unit);
}

Draft empty_draft(StepShape step) {
  Draft draft;
  draft.lists.resize(step.shape.coords);
  draft.program.step = std::move(step);
  return draft;
}

}  // namespace

Draft expand_units(const pipeline::Schedule& schedule, StepShape step) {
  Draft draft = empty_draft(std::move(step));
  for (int coord = 0; coord < schedule.shape().coords; ++coord)
    for (const pipeline::Pass& pass : schedule.passes({coord}))
      append_units(draft.step(), pass, draft.lists[coord].compute);
  return draft;
}

Draft expand_forward(StepShape step) {
  Draft draft = empty_draft(std::move(step));
  const pipeline::Shape& shape = draft.step().shape;
  for (int mb = 0; mb < shape.microbatches; ++mb)
    for (int stage = 0; stage < shape.stages(); ++stage) {
      const Coord coord = pipeline::coord_of(draft.step().placement, {stage}, shape.coords);
      append_units(draft.step(), {pipeline::PassKind::kForward, {stage}, {mb}},
                   draft.lists[coord.value].compute);
    }
  return draft;
}

}  // namespace lockstep::program
