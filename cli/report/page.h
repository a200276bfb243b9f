// The page of `lockstep report`.
#pragma once

#include <string>
#include <vector>

#include "cli/report/run.h"

namespace lockstep::cli {

// "lockstep.report/1": the runs, their curves, thinned where they are long, and the settings in
// which they differ.
Json report_json(const std::vector<RunFolder>& runs);

// The whole page (cli/page.h) of report_json() and of the pictures of these runs. Points of curves
// carry their numbers (draw/curves.h).
std::string report_page(const Json& report, const std::vector<RunFolder>& runs);

}  // namespace lockstep::cli
