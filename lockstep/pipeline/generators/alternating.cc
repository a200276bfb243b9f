#include <algorithm>
#include <utility>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> alternating(const Shape& shape, const std::vector<int>& warm_ups) {
  const int m = shape.microbatches;
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int warm_up = std::min(warm_ups[static_cast<std::size_t>(r)], m);
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int mb = 0; mb < warm_up; ++mb) passes.push_back({PassKind::kForward, {r}, {mb}});
    for (int mb = 0; mb < m; ++mb) {
      if (mb + warm_up < m) passes.push_back({PassKind::kForward, {r}, {mb + warm_up}});
      passes.push_back({PassKind::kBackward, {r}, {mb}});
    }
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

}  // namespace lockstep::pipeline
