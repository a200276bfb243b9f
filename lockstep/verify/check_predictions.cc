#include "lockstep/verify/check_predictions.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/program/text.h"

namespace lockstep::verify {
namespace {

using train::Job;

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

std::string compare_memory(const train::Job& job, Coord coord,
                           const std::vector<std::int64_t>& predicted,
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

PredictionCheck check_predictions(const train::Job& job, const RankRecord& record) {
  const Coord coord = job.place(record.rank).coord;
  train::Prediction predicted = train::predict(job, record.rank);
  PredictionCheck check;
  check.predicted_peak = predicted.peak_bytes;
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    if (const auto& rows = record.steps[i].report.rows_met; !rows.empty()) {
      predicted = train::predict(job, record.rank, rows);
      check.predicted_peak =
          i == 0 ? predicted.peak_bytes : std::max(check.predicted_peak, predicted.peak_bytes);
    }
    check.peak_bytes = std::max(check.peak_bytes, record.steps[i].report.peak_bytes);
    if (!check.mismatch.empty()) continue;
    check.mismatch = compare_traffic(predicted.traffic, record.steps[i].ledger);
    if (check.mismatch.empty())
      check.mismatch = compare_memory(job, coord, predicted.live, record.steps[i].live);
    if (!check.mismatch.empty())
      check.mismatch =
          join_parts("rank ", record.rank.value, ", trial step ", i, ": ", check.mismatch);
  }
  return check;
}

}  // namespace lockstep::verify
