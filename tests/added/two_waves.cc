// A schedule that only tests/added has: GPipe in two waves, half of the microbatches in each.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> two_waves(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("two-waves", shape); !fits.ok()) return fits.error();
  const int half = (shape.microbatches + 1) / 2;
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int begin = 0; begin < shape.microbatches; begin += half)
      for (const PassKind kind : {PassKind::kForward, PassKind::kBackward})
        for (int mb = begin; mb < std::min(begin + half, shape.microbatches); ++mb)
          passes.push_back({kind, {r}, {mb}});
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

}  // namespace lockstep::pipeline
