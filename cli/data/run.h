// The run file of verbs that look at a run's data.
#pragma once

#include <optional>

#include "cli/verb.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

// Nothing when the file has mistakes or names no data, after telling so; `code` is then what to return.
std::optional<spec::Spec> load_run_with_data(const Args& args, Output& output, ExitCode& code);

}  // namespace lockstep::cli
