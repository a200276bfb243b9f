#include "lockstep/program/program.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::program {

Stage StepShape::stage_of(int unit) const {
  LS_CHECK(unit >= 0 && unit < units(), "unit ", unit, " of ", units());
  const auto after = std::ranges::upper_bound(stage_begin, unit);
  return {static_cast<std::int32_t>(after - stage_begin.begin()) - 1};
}

Coord StepShape::coord_of(int segment) const {
  return pipeline::coord_of(placement, stage_of(unit_of(segment)), shape.coords);
}

std::int32_t Program::find_transfer(bool is_grad, int unit, int microbatch) const {
  const auto key_of = [](bool grad, int u, int mb) {
    return std::int64_t{grad} << 62 | std::int64_t{u} << 31 | std::int64_t{mb};
  };
  const auto key_in = [&](const Transfer& t) { return key_of(t.is_grad, t.unit, t.microbatch); };
  const std::int64_t key = key_of(is_grad, unit, microbatch);
  const auto found = std::ranges::lower_bound(transfers, key, {}, key_in);
  if (found == transfers.end() || key_in(*found) != key) return -1;
  return static_cast<std::int32_t>(found - transfers.begin());
}

}  // namespace lockstep::program
