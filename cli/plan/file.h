// A plan, as `lockstep plan --out` writes it, put into a run: `lockstep train --plan`.
#pragma once

#include <optional>

#include "cli/verb.h"
#include "lockstep/config/document.h"

namespace lockstep::cli {

// --plan FILE.
Option plan_option();

// `run` with the layout and the microbatch of the plan file that --plan names in place of its own;
// unchanged without --plan. Nothing when the plan was made for a model, sequence or batch of other
// sizes, when --set says something else of what a plan decides, or without a run file; the mistakes
// are in `report`.
std::optional<config::Document> with_plan(const Args& args, config::Document run,
                                          config::Report& report);

}  // namespace lockstep::cli
