#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/program/passes/passes.h"

namespace lockstep::program {

Draft add_recompute(Draft draft) {
  for (DraftList& list : draft.lists) {
    LS_CHECK(list.attached.empty(), "compute ops may not move once others refer to them");
    std::vector<Op> compute;
    for (const Op& op : list.compute) {
      const bool needs_stash = op.kind == OpKind::kBackward || op.kind == OpKind::kInputGrad;
      if (needs_stash && draft.step().recomputes(op.unit))
        compute.push_back(
            {.kind = OpKind::kRecompute, .unit = op.unit, .microbatch = op.microbatch});
      compute.push_back(op);
    }
    list.compute = std::move(compute);
  }
  return draft;
}

}  // namespace lockstep::program
