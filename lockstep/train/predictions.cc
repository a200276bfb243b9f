#include "lockstep/train/predictions.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/cost/traffic.h"
#include "lockstep/plan/step_sizes.h"
#include "lockstep/schedule/memory_walk.h"
#include "lockstep/schedule/text.h"

namespace lockstep::train {

cost::StepSizes sizes_of(const Job& job, Rank rank) {
  cost::StepSizes sizes = plan::step_sizes(job.spec);
  sizes.unit.head_chunk = job.workspace.head_chunk;
  sizes.looks_at_noise = job.program.step.noise && job.place(rank).data_index() == 0;
  return sizes;
}

namespace {

schedule::MemoryWalk memory_of(const Job& job, Rank rank) {
  return walk(job.program, job.place(rank).coord,
              cost::program_bytes(job.model, job.program.step, sizes_of(job, rank)));
}

cost::Traffic traffic_of(const Job& job, Rank rank) {
  return cost::step_traffic(job.program, job.model, sizes_of(job, rank), job.mesh, rank);
}

std::string compare_traffic(const cost::Traffic& predicted, const cost::Traffic& measured) {
  cost::Traffic keys = predicted;
  keys.insert(measured.begin(), measured.end());
  for (const auto& [key, unused] : keys) {
    const auto of = [&key = key](const cost::Traffic& traffic) {
      const auto found = traffic.find(key);
      return found == traffic.end() ? comm::Ledger::Entry{} : found->second;
    };
    const comm::Ledger::Entry expected = of(predicted), seen = of(measured);
    if (expected != seen)
      return join_parts(to_text(key.op), " on ", key.axis, ": predicted ", expected.sent.value,
                        " bytes in ", expected.calls, " calls, sent ", seen.sent.value, " in ",
                        seen.calls);
  }
  return "";
}

std::string compare_memory(const Job& job, Coord coord, const std::vector<std::int64_t>& predicted,
                           const std::vector<std::int64_t>& measured) {
  for (std::size_t i = 0; i < std::min(predicted.size(), measured.size()); ++i)
    if (predicted[i] != measured[i])
      return join_parts("after op ", i, " (",
                        op_text(job.program, coord, job.program.list(coord)[i]), "): predicted ",
                        predicted[i], " live bytes, measured ", measured[i]);
  if (predicted.size() == measured.size()) return "";
  return join_parts("predicted ", predicted.size(), " ops, ran ", measured.size());
}

}  // namespace

Prediction predict(const Job& job, Rank rank) {
  const Coord coord = job.place(rank).coord;
  const schedule::MemoryWalk memory = memory_of(job, rank);
  Prediction prediction;
  prediction.peak_bytes = memory.peak;
  if (memory.peak_op >= 0)
    prediction.peak_op = op_text(job.program, coord,
                                 job.program.list(coord)[static_cast<std::size_t>(memory.peak_op)]);
  for (const auto& [key, entry] : traffic_of(job, rank)) prediction.sent += entry.sent;
  return prediction;
}

PredictionCheck check_predictions(const Job& job, const RankRecord& record) {
  const Coord coord = job.place(record.rank).coord;
  const schedule::MemoryWalk memory = memory_of(job, record.rank);
  const cost::Traffic traffic = traffic_of(job, record.rank);
  PredictionCheck check;
  check.predicted_peak = memory.peak;
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    check.peak_bytes = std::max(check.peak_bytes, record.steps[i].report.peak_bytes);
    if (!check.mismatch.empty()) continue;
    check.mismatch = compare_traffic(traffic, record.steps[i].ledger);
    if (check.mismatch.empty())
      check.mismatch = compare_memory(job, coord, memory.live, record.steps[i].live);
    if (!check.mismatch.empty())
      check.mismatch =
          join_parts("rank ", record.rank.value, ", trial step ", i, ": ", check.mismatch);
  }
  return check;
}

}  // namespace lockstep::train
