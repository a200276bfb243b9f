#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
void add_loads(const Draft& draft, Coord coord, DraftList& list) {
  const StepShape& step = draft.step();
  std::vector<bool> is_loaded(step.shape.microbatches);
  bool needs_count = step.holds(coord, step.head());
  draft.for_each_compute(coord, [&](std::int32_t at, const Effects& effects) {
    for (const Value& value : effects.reads) {
      if (value.kind != ValueKind::kTokens) continue;
      if (is_loaded[value.a]) continue;
      is_loaded[value.a] = true;
      list.attach(at, Slot::kLoad, {.kind = OpKind::kLoad, .microbatch = value.a});
      if (needs_count)
        list.attach(at, Slot::kLoad, {.kind = OpKind::kCount, .group = CommGroup::kData});
      needs_count = false;
    }
  });
}

}  // namespace lockstep::program
