// What the job's description says about a step of a rank. The run itself never reads these
// predictions; verify/check_predictions.h compares them with what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/cost/traffic.h"
#include "lockstep/train/job.h"

namespace lockstep::train {

// What the bytes of a rank's steps depend on besides model and program.
cost::StepSizes sizes_of(const Job& job, Rank rank);

// Of one rank's step.
struct Prediction {
  std::int64_t peak_bytes = 0;     // tensor memory
  std::string peak_op;             // the op at the peak, in words
  std::vector<std::int64_t> live;  // tensor bytes after every op
  cost::Traffic traffic;           // bytes sent per axis and operation
  Bytes sent() const;              // over all of them
};
// `rows_met`: of a step that ran; else every expert of ranks that share them meets as many.
Prediction predict(const Job& job, Rank rank, const model::RowsMetBy& rows_met = {});

// Peak of tensor memory where this rank's experts meet, in every block and microbatch, `times` the
// rows that they would if all met as many, or all that other ranks can send them. REQUIRES: ranks
// that share experts.
std::int64_t peak_if_met(const Job& job, Rank rank, double times);

}  // namespace lockstep::train
