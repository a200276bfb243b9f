#include "lockstep/schedule/program.h"

#include <algorithm>
#include <tuple>

#include "lockstep/base/check.h"

namespace lockstep::schedule {

Stage StepShape::stage_of(int unit) const {
  LS_CHECK(unit >= 0 && unit < units(), "unit ", unit, " of ", units());
  const auto after = std::ranges::upper_bound(stage_begin, unit);
  return {static_cast<std::int32_t>(after - stage_begin.begin()) - 1};
}

Coord StepShape::coord_of(int unit) const {
  return schedule::coord_of(placement, stage_of(unit), shape.coords);
}

std::int32_t Program::find_transfer(bool is_grad, int unit, int microbatch) const {
  const auto key = std::tuple(is_grad, unit, microbatch);
  const auto key_of = [](const Transfer& t) { return std::tuple(t.is_grad, t.unit, t.microbatch); };
  const auto found = std::ranges::lower_bound(transfers, key, {}, key_of);
  if (found == transfers.end() || key_of(*found) != key) return -1;
  return static_cast<std::int32_t>(found - transfers.begin());
}

}  // namespace lockstep::schedule
