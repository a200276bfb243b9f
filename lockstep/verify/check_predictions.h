// What a job's description says about a step, against what a rank measured: bytes sent per axis and
// operation, tensor bytes after every op, and their peak.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "lockstep/train/predictions.h"
#include "lockstep/verify/trial.h"

namespace lockstep::verify {

struct PredictionCheck {
  std::string mismatch;         // the first difference; empty: all equal
  std::int64_t peak_bytes = 0;  // measured
  std::int64_t predicted_peak = 0;
  double peak_error() const {
    return peak_bytes == 0 ? 0.0
                           : std::abs(static_cast<double>(predicted_peak - peak_bytes)) /
                                 static_cast<double>(peak_bytes);
  }
};

PredictionCheck check_predictions(const train::Job& job, const RankRecord& record);

}  // namespace lockstep::verify
