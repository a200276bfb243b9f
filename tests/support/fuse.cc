#include "tests/support/fuse.h"

#include <utility>
#include <vector>

namespace lockstep::pipeline {
namespace {

std::vector<Pass> fused(std::span<const Pass> passes) {
  std::vector<Pass> result;
  for (Pass pass : passes) {
    const Pass input = {PassKind::kInputGrad, pass.stage, pass.microbatch};
    if (pass.kind == PassKind::kWeightGrad && !result.empty() && result.back() == input)
      result.back().kind = PassKind::kBackward;
    else
      result.push_back(pass);
  }
  return result;
}

}  // namespace

Schedule fuse_backward(const Schedule& schedule) {
  std::vector<std::vector<Pass>> timetable;
  for (int coord = 0; coord < schedule.shape().coords; ++coord)
    timetable.push_back(fused(schedule.passes({coord})));
  return Schedule::create(schedule.shape(), schedule.placement(), std::move(timetable)).value();
}

}  // namespace lockstep::pipeline
