// Huang et al., "GPipe: Efficient training of giant neural networks using pipeline parallelism",
// NeurIPS 2019: all forward passes, then all backward passes. The paper runs the backward passes in
// reverse; here they ascend like in every schedule, so that gradients are added in one order.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> gpipe(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("gpipe", shape); !fits.ok()) return fits.error();
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    std::vector<Pass>& passes = timetable.emplace_back();
    for (const PassKind kind : {PassKind::kForward, PassKind::kBackward})
      for (int mb = 0; mb < shape.microbatches; ++mb) passes.push_back({kind, {r}, {mb}});
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

}  // namespace lockstep::pipeline
