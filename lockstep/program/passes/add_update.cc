#include "lockstep/program/op_table.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {

Draft add_update(Draft draft) {
  const StepShape& step = draft.step();
  for (std::size_t i = 0; i < draft.lists.size(); ++i) {
    DraftList& list = draft.lists[i];
    const Coord coord = {static_cast<std::int32_t>(i)};
    const bool holds_tied = step.holds(coord, 0) || step.holds(coord, step.head());
    if (step.tied && holds_tied && !step.forward_only)
      list.attach(list.end(), Slot::kTied, {.kind = OpKind::kReduceTied, .reach = Reach::kTied});
    list.attach(list.end(), Slot::kNorm,
                {.kind = OpKind::kNorm, .reach = usual_reach(step, OpKind::kNorm)});
    for (std::int32_t unit = 0; unit < step.units() && !step.forward_only; ++unit)
      if (step.holds(coord, unit))
        list.attach(list.end(), Slot::kUpdate, {.kind = OpKind::kUpdate, .unit = unit});
  }
  return draft;
}

}  // namespace lockstep::program
