// A measured step beside its prediction, as a table or JSON.
#pragma once

#include <string>

#include "cli/verb.h"
#include "lockstep/sim/residuals.h"

namespace lockstep::cli {

// By cause, then by kind of op; rows below a thousandth of the step in both are left out. Last the step
// itself and by how much its prediction is off. `file` is what was measured.
void print_residuals(const sim::Residuals& residuals, const std::string& file, Output& output);

Json residuals_json(const sim::Residuals& residuals);

}  // namespace lockstep::cli
