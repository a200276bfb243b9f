// Looped breadth-first: Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023. Every chunk
// runs all its microbatches before the next chunk begins, so a sharded stage is gathered once in
// each direction; everything is held. With one chunk this is gpipe.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> looped_bfs(const Shape& shape) {
  if (Result<void> usable = check_shape(shape); !usable.ok()) return usable.error();
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    std::vector<Pass>& passes = timetable.emplace_back();
    const auto run_all = [&](PassKind kind, int chunk) {
      for (int mb = 0; mb < shape.microbatches; ++mb)
        passes.push_back({kind, {chunk * shape.coords + r}, {mb}});
    };
    for (int chunk = 0; chunk < shape.chunks; ++chunk) run_all(PassKind::kForward, chunk);
    for (int chunk = shape.chunks - 1; chunk >= 0; --chunk) run_all(PassKind::kBackward, chunk);
  }
  return Schedule::create(shape, Placement::kLoop, std::move(timetable));
}

}  // namespace lockstep::pipeline
