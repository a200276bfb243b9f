#include "lockstep/pipeline/generators/generators.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {

Result<Schedule> alternating(const Shape& shape, const std::vector<int>& warm_ups) {
  const int m = shape.microbatches;
  Timetable timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int warm_up = std::min(warm_ups[r], m);
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int mb = 0; mb < warm_up; ++mb) passes.push_back({PassKind::kForward, {r}, {mb}});
    for (int mb = 0; mb < m; ++mb) {
      if (mb + warm_up < m) passes.push_back({PassKind::kForward, {r}, {mb + warm_up}});
      passes.push_back({PassKind::kBackward, {r}, {mb}});
    }
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

Result<void> check_one_chunk(std::string_view name, const Shape& shape) {
  LS_TRY(check_shape(shape));
  if (shape.chunks == 1) return {};
  return Error{Code::kOutOfRange,
               join_parts("schedule `", name, "` runs one stage per pipeline rank, vpp = ",
                          shape.chunks, " asks for more"),
               "set vpp = 1, or choose an interleaved schedule"};
}

Result<void> check_two_chunks(std::string_view name, const Shape& shape) {
  LS_TRY(check_shape(shape));
  if (shape.chunks == 2) return {};
  return Error{Code::kOutOfRange,
               join_parts("schedule `", name, "` runs two stages per pipeline rank, vpp = ",
                          shape.chunks, " asks for another number"),
               "set vpp = 2"};
}

}  // namespace lockstep::pipeline
