#include "lockstep/train/predictions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/program/memory_walk.h"
#include "lockstep/program/text.h"
#include "lockstep/spec/step.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/train/state_check.h"

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
  if (job.program.step.checks && job.mesh.world() > 1) {
    prediction.traffic[{kCheckAxis, comm::OpKind::kSend}] = {1, Bytes{spot_check_bytes(job)}};
    prediction.traffic[{kCheckAxis, comm::OpKind::kRecv}] = {1, {}};
  }
  if (memory.peak_op >= 0)
    prediction.peak_op = op_text(job.program, coord, job.program.list(coord)[memory.peak_op]);
  return prediction;
}

std::int64_t peak_if_met(const Job& job, Rank rank, double times) {
  const model::Moe& moe = job.model.config.moe;
  const std::int64_t ep = job.spec.layout.degrees.ep;
  LS_CHECK(ep > 1, "every rank has all experts");
  const std::int64_t tokens = sizes_of(job, rank).unit.routed_tokens();
  const std::int64_t most = ep * tokens * std::min(moe.top_k, moe.experts / ep);
  const double share = times * static_cast<double>(tokens * moe.top_k);
  const std::int64_t all =
      share < static_cast<double>(most) ? static_cast<std::int64_t>(std::ceil(share)) : most;
  model::RowsMetBy rows;
  for (int unit = 0; unit < job.model.num_units(); ++unit)
    for (int microbatch = 0; microbatch < job.program.step.shape.microbatches; ++microbatch)
      if (job.program.step.has_experts(unit)) rows[{unit, microbatch}] = {all, all / ep};
  return predict(job, rank, rows).peak_bytes;
}

Bytes Prediction::sent() const {
  Bytes all;
  for (const auto& [key, entry] : traffic) all += entry.sent;
  return all;
}

}  // namespace lockstep::train
