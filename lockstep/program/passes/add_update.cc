#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {

void add_update(const Draft& draft, Coord coord, DraftList& list) {
  const StepShape& step = draft.step();
  const bool holds_tied = step.holds(coord, 0) || step.holds(coord, step.head());
  if (step.tied && holds_tied && !step.forward_only)
    list.attach(list.end(), Slot::kTied, {.kind = OpKind::kReduceTied, .group = CommGroup::kTied});
  list.attach(list.end(), Slot::kNorm,
              {.kind = OpKind::kNorm, .group = usual_group(step, OpKind::kNorm)});
  for (std::int32_t unit = 0; unit < step.units() && !step.forward_only; ++unit)
    if (step.holds(coord, unit))
      list.attach(list.end(), Slot::kUpdate, {.kind = OpKind::kUpdate, .unit = unit});
}

}  // namespace lockstep::program
