// `lockstep plan --report`: the answer as one page of HTML that needs nothing else, to be read,
// printed and handed on.
#pragma once

#include <string>

#include "cli/plan/answer.h"
#include "cli/verb.h"

namespace lockstep::cli {

// What the page shows besides plan_json(), which holds it as "report".
Json report_json(const Args& args, const PlanRequest& request, const PlanAnswer& answer);

// The first microbatches of a step on the pipeline ranks, as SVG; empty without a pipeline.
std::string timeline_svg(const PlanRow& row);

// The whole page. Every number and every text of the user in it stands in an element whose
// `data-json` is its path in `plan`, such as "plans.0.step_s.total". REQUIRES: plan_json() with
// --report.
std::string plan_page(const Json& plan, const std::string& timeline);

}  // namespace lockstep::cli
