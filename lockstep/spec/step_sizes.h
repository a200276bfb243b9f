// From a run to what the bytes of its steps depend on besides model and program.
#pragma once

#include "lockstep/cost/program_bytes.h"
#include "lockstep/spec/spec.h"

namespace lockstep::spec {

// Of any rank; which of them looks at noise is left open. REQUIRES: a layout that legal() accepts.
cost::StepSizes step_sizes(const Spec& spec);

}  // namespace lockstep::spec
