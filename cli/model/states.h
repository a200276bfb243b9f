// `lockstep model NAME --dp N`: what one rank keeps of a model's weights, gradients and optimizer
// state under every stage of ZeRO.
#pragma once

#include <string>

#include "cli/verb.h"
#include "lockstep/model/arch.h"

namespace lockstep::cli {

// "2.524 TB": four digits and a decimal prefix.
std::string four_digits(double value, const char* unit);
// "405.9B"
std::string billions(std::int64_t number);

// Options that only go with --dp.
std::vector<Option> state_options();

// REQUIRES: args.has("dp").
Result<ExitCode> print_states(const Args& args, Output& output, const model::Model& model);

// Refuses options of --dp without it, and --dp beside what says how a unit runs.
Result<void> check_state_options(const Args& args);

}  // namespace lockstep::cli
