// `lockstep model NAME --unit block`: the passes of a unit as lists of parts, with what each part
// makes, computes and sends on one rank.
#pragma once

#include "cli/verb.h"
#include "lockstep/model/arch.h"

namespace lockstep::cli {

// The options, all of which go with --unit.
std::vector<Option> unit_options();

// REQUIRES: args.has("unit").
Result<ExitCode> print_unit(const Args& args, Output& output, const model::Model& model,
                            std::int64_t seq);

// Refuses such an option without --unit.
Result<void> check_unit_options(const Args& args);

}  // namespace lockstep::cli
