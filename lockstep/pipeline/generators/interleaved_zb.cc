// Interleaved 1F1B with weight gradients apart, r turns behind the input gradients: the interleaved
// form of ZB-H1 of Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, in the order that
// PyTorch's ScheduleInterleavedZeroBubble gives it.
#include <algorithm>
#include <vector>

#include "lockstep/pipeline/generators/chunk_table.h"
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> interleaved_zb(const Shape& shape, int group) {
  const ChunkTable table = LS_TRY(ChunkTable::create(shape, group));
  const int size = table.size();
  Timetable timetable;
  for (int r = 0; r < shape.coords; ++r) {
    const int wanted = (shape.chunks - 1) * table.group() + shape.coords - 1 - r;
    const int warm_up = std::min(wanted, size), lag = std::min(r, size);
    std::vector<Pass>& passes = timetable.emplace_back();
    for (int turn = 0; turn < warm_up; ++turn) passes.push_back(table.forward(r, turn));
    for (int turn = 0; turn < size; ++turn) {
      if (turn + warm_up < size) passes.push_back(table.forward(r, turn + warm_up));
      passes.push_back(table.backward(PassKind::kInputGrad, r, turn));
      if (turn >= lag) passes.push_back(table.backward(PassKind::kWeightGrad, r, turn - lag));
    }
    for (int turn = size - lag; turn < size; ++turn)
      passes.push_back(table.backward(PassKind::kWeightGrad, r, turn));
  }
  return table.schedule("interleaved-zb", std::move(timetable));
}

Result<Schedule> interleaved_zb(const Shape& shape) { return interleaved_zb(shape, shape.coords); }

// ZB-H1 of the same paper: the order of 1F1B, but weight gradients run r microbatches behind the
// input gradients, so that the later a pipeline rank, the sooner the one before it can go on. None
// holds more than the first.
Result<Schedule> zb_h1(const Shape& shape) {
  LS_TRY(check_one_chunk("zb-h1", shape));
  return interleaved_zb(shape);
}

}  // namespace lockstep::pipeline
