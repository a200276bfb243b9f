// Looped breadth-first: Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023. Every chunk
// runs all its microbatches before the next chunk begins, so a sharded stage is gathered once in
// each direction; everything is held.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> looped_bfs(const Shape& shape) {
  LS_TRY(check_shape(shape));
  Timetable timetable;
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

// Huang et al., "GPipe: Efficient training of giant neural networks using pipeline parallelism",
// NeurIPS 2019: all forward passes, then all backward passes. The paper runs the backward passes in
// reverse; here they ascend like in every schedule, so that gradients are added in one order.
Result<Schedule> gpipe(const Shape& shape) {
  LS_TRY(check_one_chunk("gpipe", shape));
  return looped_bfs(shape);
}

}  // namespace lockstep::pipeline
