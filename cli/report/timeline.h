// The picture of a step on a page about a run.
#pragma once

#include <string>

#include "lockstep/base/result.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {

// What was measured, where the run's folder has a file `timeline` (train --timeline RUN/timeline),
// else what its layout comes to if units take as long as their FLOPs say; as SVG. An Error says why
// there is none.
Result<std::string> step_picture(const spec::Spec& spec, const std::string& folder);

}  // namespace lockstep::cli
