// `lockstep plan --fits`: a gate for scripts.
#pragma once

#include "cli/plan/answer.h"
#include "cli/verb.h"

namespace lockstep::cli {

// One line: whether the first layout fits into memory, and how much it needs. kOk or kCheckFailed.
ExitCode print_fits(const PlanRequest& request, const PlanAnswer& answer, Output& output);

}  // namespace lockstep::cli
