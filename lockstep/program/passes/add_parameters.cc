#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"
#include "lockstep/program/passes/residency.h"

namespace lockstep::program {
namespace {

// The compute ops that read whole parameters of a unit, in order.
struct Uses {
  std::vector<std::int32_t> at;
  std::vector<std::int32_t> unit;
};

Uses uses_of(const Draft& draft, Coord coord) {
  Uses uses;
  draft.for_each_compute(coord, [&](std::int32_t at, const Effects& effects) {
    for (const Value& value : effects.reads) {
      if (value.kind != ValueKind::kParam || draft.step().is_experts(value.a)) continue;
      uses.at.push_back(at);
      uses.unit.push_back(value.a);
    }
  });
  return uses;
}

Op op_of(const StepShape& step, OpKind kind, std::int32_t segment) {
  Op op = {.kind = kind, .unit = segment};
  op.group = usual_group(step, op);
  return op;
}

void all_gather_updated(const StepShape& step, const Uses& uses, DraftList& list) {
  std::unordered_set<std::int32_t> gathered;
  for (std::size_t i = 0; i < uses.at.size(); ++i) {
    if (!gathered.insert(uses.unit[i]).second) continue;
    step.for_each_segment(uses.unit[i], [&](int segment) {
      const std::int32_t handle =
          list.attach(0, Slot::kAllGatherUpdated, op_of(step, OpKind::kAllGatherUpdated, segment));
      list.attach_wait(uses.at[i], Slot::kWaitParam, handle);
    });
  }
}

void gather_and_free(const StepShape& step, const Uses& uses, DraftList& list) {
  std::unordered_map<std::int32_t, std::int32_t> after_free;  // per unit, earliest place to gather
  for (const Stay& stay : farthest_next_use(uses.unit, step.resident_units)) {
    const std::int32_t use = uses.at[stay.first];
    const std::int32_t last = uses.at[stay.last];
    const std::int32_t early = std::max(use - step.prefetch, after_free[stay.unit]);
    step.for_each_segment(stay.unit, [&](int segment) {
      const std::int32_t handle =
          list.attach(early, Slot::kGather, op_of(step, OpKind::kGather, segment));
      list.attach_wait(use, Slot::kWaitParam, handle);
      list.attach(last, Slot::kFree, op_of(step, OpKind::kFree, segment));
    });
    after_free[stay.unit] = last + 1;
  }
}

}  // namespace

void add_parameters(const Draft& draft, Coord coord, DraftList& list) {
  const StepShape& step = draft.step();
  if (step.zero == 0) return;
  if (step.zero == 3)
    gather_and_free(step, uses_of(draft, coord), list);
  else
    all_gather_updated(step, uses_of(draft, coord), list);
}

}  // namespace lockstep::program
