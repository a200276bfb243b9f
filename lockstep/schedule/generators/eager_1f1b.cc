// 1F1B with twice the warm-up, so that a hop in each direction hides behind compute: Zhuang et al.,
// "On optimizing the communication of model parallelism", MLSys 2023.
#include <algorithm>
#include <vector>

#include "lockstep/schedule/generators/generators.h"

namespace lockstep::schedule {

Result<Schedule> eager_1f1b(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("eager-1f1b", shape); !fits.ok()) return fits.error();
  const int m = shape.microbatches;
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int warm_up = std::min(2 * (shape.coords - 1 - r), m);
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int mb = 0; mb < warm_up; ++mb) passes.push_back({PassKind::kForward, {r}, {mb}});
    for (int mb = 0; mb < m; ++mb) {
      if (mb + warm_up < m) passes.push_back({PassKind::kForward, {r}, {mb + warm_up}});
      passes.push_back({PassKind::kBackward, {r}, {mb}});
    }
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

}  // namespace lockstep::schedule
