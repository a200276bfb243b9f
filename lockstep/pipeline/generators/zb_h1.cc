// ZB-H1 of Qi et al., "Zero bubble pipeline parallelism", ICLR 2024: the order of 1F1B, but weight
// gradients run r microbatches behind the input gradients, so that the later a coordinate is in the
// pipeline, the sooner the one before it can go on. No coordinate holds more than the first.
#include <algorithm>
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> zb_h1(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("zb-h1", shape); !fits.ok()) return fits.error();
  const int m = shape.microbatches;
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    std::vector<Pass>& passes = timetable.emplace_back();
    const auto append = [&](PassKind kind, int mb) {
      if (mb >= 0 && mb < m) passes.push_back({kind, {r}, {mb}});
    };
    const int warm_up = shape.coords - 1 - r;
    for (int mb = 0; mb < warm_up; ++mb) append(PassKind::kForward, mb);
    for (int mb = 0; mb < m; ++mb) {
      append(PassKind::kForward, mb + warm_up);
      append(PassKind::kInputGrad, mb);
      append(PassKind::kWeightGrad, mb - r);
    }
    for (int mb = std::max(0, m - r); mb < m; ++mb) append(PassKind::kWeightGrad, mb);
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

}  // namespace lockstep::pipeline
