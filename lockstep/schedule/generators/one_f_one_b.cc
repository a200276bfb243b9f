// One forward, one backward, with a flush at the end of the step: PipeDream-flush in Narayanan et
// al., "Memory-efficient pipeline-parallel DNN training", ICML 2021. After a warm-up as deep as the
// pipeline behind it, a coordinate alternates, so it holds at most coords - r microbatches.
#include <algorithm>
#include <vector>

#include "lockstep/schedule/generators/generators.h"

namespace lockstep::schedule {

Result<Schedule> one_f_one_b(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("1f1b", shape); !fits.ok()) return fits.error();
  const int m = shape.microbatches;
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int warm_up = std::min(shape.coords - 1 - r, m);
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
