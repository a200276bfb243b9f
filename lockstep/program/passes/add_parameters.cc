#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/program/passes/passes.h"
#include "lockstep/program/passes/residency.h"

namespace lockstep::program {
namespace {

// The compute ops that read whole parameters, in order.
struct Uses {
  std::vector<std::int32_t> at;
  std::vector<std::int32_t> unit;
};

Uses uses_of(const Draft& draft, Coord coord) {
  Uses uses;
  draft.for_each_compute(coord, [&](std::int32_t at, const Effects& effects) {
    for (const Value& value : effects.reads) {
      if (value.kind != ValueKind::kParam) continue;
      uses.at.push_back(at);
      uses.unit.push_back(value.a);
    }
  });
  return uses;
}

void all_gather_updated(const Uses& uses, DraftList& list) {
  std::unordered_set<std::int32_t> gathered;
  for (std::size_t i = 0; i < uses.at.size(); ++i) {
    if (!gathered.insert(uses.unit[i]).second) continue;
    const std::int32_t handle = list.attach(
        0, Slot::kAllGatherUpdated,
        {.kind = OpKind::kAllGatherUpdated, .group = CommGroup::kShard, .unit = uses.unit[i]});
    list.attach_wait(uses.at[i], Slot::kWaitParam, handle);
  }
}

void gather_and_free(const StepShape& step, const Uses& uses, DraftList& list) {
  std::unordered_map<std::int32_t, std::int32_t> after_free;  // per unit, earliest place to gather
  for (const Stay& stay : farthest_next_use(uses.unit, step.resident_units)) {
    const std::int32_t use = uses.at[stay.first];
    const std::int32_t last = uses.at[stay.last];
    const std::int32_t early = std::max(use - step.prefetch, after_free[stay.unit]);
    const std::int32_t handle =
        list.attach(early, Slot::kGather,
                    {.kind = OpKind::kGather, .group = CommGroup::kShard, .unit = stay.unit});
    list.attach_wait(use, Slot::kWaitParam, handle);
    list.attach(last, Slot::kFree, {.kind = OpKind::kFree, .unit = stay.unit});
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
    all_gather_updated(uses_of(draft, coord), list);
}

}  // namespace lockstep::program
