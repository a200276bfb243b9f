// Interleaved 1F1B: Narayanan et al., "Efficient large-scale language model training on GPU
// clusters using Megatron-LM", SC 2021. Several short stages per coordinate divide the bubble by
// their number and multiply the hops. The group size is free as in Grattafiori et al., "The Llama 3
// herd of models", 2024, section 3.3.2: as large as the coordinates it goes depth first and holds
// least, larger groups hide hops. With one chunk this is eager-1f1b.
#include <algorithm>
#include <vector>

#include "lockstep/pipeline/generators/chunk_table.h"
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> interleaved(const Shape& shape, int group) {
  const Result<ChunkTable> table = ChunkTable::create(shape, group);
  if (!table.ok()) return table.error();
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int wanted = (shape.chunks - 1) * table->group() + 2 * (shape.coords - 1 - r);
    const int warm_up = std::min(wanted, table->size());
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int turn = 0; turn < warm_up; ++turn) passes.push_back(table->forward(r, turn));
    for (int turn = 0; turn < table->size(); ++turn) {
      if (turn + warm_up < table->size()) passes.push_back(table->forward(r, turn + warm_up));
      passes.push_back(table->backward(PassKind::kBackward, r, turn));
    }
  }
  return table->schedule("interleaved", std::move(timetable));
}

Result<Schedule> interleaved(const Shape& shape) { return interleaved(shape, shape.coords); }

}  // namespace lockstep::pipeline
