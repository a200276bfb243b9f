// What the job's description says about a step, against what a rank measured: bytes sent per axis
// and operation, tensor bytes after every op, and their peak. The run itself never reads these
// predictions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "lockstep/base/units.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/train/job.h"
#include "lockstep/train/trial.h"

namespace lockstep::train {

// What the bytes of a rank's steps depend on besides model and program.
cost::StepSizes sizes_of(const Job& job, Rank rank);

// Of one rank's step.
struct Prediction {
  std::int64_t peak_bytes = 0;  // tensor memory
  std::string peak_op;          // the op at the peak, in words
  Bytes sent;                   // over all axes
};
Prediction predict(const Job& job, Rank rank);

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

PredictionCheck check_predictions(const Job& job, const RankRecord& record);

}  // namespace lockstep::train
