// Interleaved 1F1B: Narayanan et al., "Efficient large-scale language model training on GPU
// clusters using Megatron-LM", SC 2021. Several short stages per pipeline rank divide the bubble by
// their number and multiply the hops. The group size is free as in Grattafiori et al., "The Llama 3
// herd of models", 2024, section 3.3.2: groups of as many microbatches as there are pipeline ranks
// go depth first and hold least, larger ones hide hops.
#include <algorithm>
#include <vector>

#include "lockstep/pipeline/generators/chunk_table.h"
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> interleaved(const Shape& shape, int group) {
  const ChunkTable table = LS_TRY(ChunkTable::create(shape, group));
  Timetable timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int wanted = (shape.chunks - 1) * table.group() + 2 * (shape.coords - 1 - r);
    const int warm_up = std::min(wanted, table.size());
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int turn = 0; turn < warm_up; ++turn) passes.push_back(table.forward(r, turn));
    for (int turn = 0; turn < table.size(); ++turn) {
      if (turn + warm_up < table.size()) passes.push_back(table.forward(r, turn + warm_up));
      passes.push_back(table.backward(PassKind::kBackward, r, turn));
    }
  }
  return table.schedule("interleaved", std::move(timetable));
}

Result<Schedule> interleaved(const Shape& shape) { return interleaved(shape, shape.coords); }

// 1F1B with twice the warm-up, so that a hop in each direction hides behind compute: Zhuang et al.,
// "On optimizing the communication of model parallelism", MLSys 2023.
Result<Schedule> eager_1f1b(const Shape& shape) {
  LS_TRY(check_one_chunk("eager-1f1b", shape));
  return interleaved(shape);
}

}  // namespace lockstep::pipeline
