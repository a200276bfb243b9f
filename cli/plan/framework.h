// The frameworks of `lockstep plan --for` and `--emit`.
#pragma once

#include <string>
#include <vector>

#include "cli/plan/answer.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/planner/framework.h"

namespace lockstep::cli {

// Of --for, else of --emit, which implies it; null without either.
const planner::Framework* framework_of(const Args& args);
std::vector<std::string> framework_names(bool written = false);

// What --for, --emit, --dtype and --schedules say against each other.
void check_framework(const Args& args, const planner::Question& question, config::Report& report);
// That the framework runs the layout; without one every layout will do.
Result<void> check_layout(const planner::Question& question, const spec::Layout& layout,
                          std::int64_t microbatch);

// The script alone on `out`, so that it can be piped; what it was made of on `err`.
Result<ExitCode> print_script(const PlanRequest& request, const PlanRow& row, Output& output);
// Adds to the answer why no script can be written, where --for has no words for the model.
void warn_of_words(const PlanRequest& request, PlanAnswer& answer);

}  // namespace lockstep::cli
