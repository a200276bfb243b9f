#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {

void add_update(const Draft& draft, Coord coord, DraftList& list) {
  const StepShape& step = draft.step();
  const bool holds_tied = step.holds(coord, 0) || step.holds(coord, step.head());
  if (step.tied && holds_tied && !step.forward_only)
    list.attach(list.end(), Slot::kTied, {.kind = OpKind::kReduceTied, .group = CommGroup::kTied});
  list.attach(list.end(), Slot::kNorm,
              {.kind = OpKind::kNorm, .group = usual_group(step, {.kind = OpKind::kNorm})});
  if (step.forward_only) return;
  step.for_each_segment(coord, [&](int segment) {
    list.attach(list.end(), Slot::kUpdate, {.kind = OpKind::kUpdate, .unit = segment});
  });
}

}  // namespace lockstep::program
