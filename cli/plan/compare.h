// Several plans in one table: `lockstep plan --compare`, and any table as CSV.
#pragma once

#include <string>

#include "cli/plan/answer.h"
#include "cli/verb.h"

namespace lockstep::cli {

// Plans what each --compare names, and prints the best of each. kCheckFailed when nothing fits.
Result<ExitCode> compare(const Args& args, Output& output);

// The columns that docs/planning.md describes, and one line; null pointer: no layout was found.
std::string csv_header();
std::string csv_line(const Args& args, const PlanRequest& request, const PlanRow* row);

}  // namespace lockstep::cli
