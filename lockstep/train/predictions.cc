#include "lockstep/train/predictions.h"

#include <utility>

#include "lockstep/program/memory_walk.h"
#include "lockstep/program/text.h"
#include "lockstep/spec/step.h"
#include "lockstep/tensor/memory.h"

namespace lockstep::train {

cost::StepSizes sizes_of(const Job& job, Rank rank) {
  cost::StepSizes sizes = spec::step_sizes(job.spec);
  sizes.unit.packs_keys = tensor::packs_keys();
  sizes.looks_at_noise = job.program.step.noise && job.place(rank).sample_index() == 0;
  return sizes;
}

Prediction predict(const Job& job, Rank rank, const model::RowsMetBy& rows_met) {
  const Coord coord = job.place(rank).coord;
  const cost::StepSizes sizes = sizes_of(job, rank);
  program::MemoryWalk memory =
      walk(job.program, coord, cost::program_bytes(job.model, job.program.step, sizes, rows_met));
  Prediction prediction;
  prediction.peak_bytes = memory.peak;
  prediction.live = std::move(memory.live);
  prediction.traffic = cost::step_traffic(job.program, job.model, sizes, job.mesh, rank, rows_met);
  if (memory.peak_op >= 0)
    prediction.peak_op = op_text(job.program, coord, job.program.list(coord)[memory.peak_op]);
  return prediction;
}

Bytes Prediction::sent() const {
  Bytes all;
  for (const auto& [key, entry] : traffic) all += entry.sent;
  return all;
}

}  // namespace lockstep::train
