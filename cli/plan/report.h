// What `lockstep plan` prints of an answer.
#pragma once

#include <string>

#include "cli/plan/answer.h"
#include "cli/verb.h"

namespace lockstep::cli {

// Table, the best layout in detail, warnings.
void print_plan(const Args& args, const PlanRequest& request, const PlanAnswer& answer,
                Output& output);

// --fits, a gate for scripts. One line: whether the first layout fits into memory, and how much it
// needs. kOk or kCheckFailed.
ExitCode print_fits(const PlanRequest& request, const PlanAnswer& answer, Output& output);

// Neighbours, what more of a machine would buy, what rules of placement say; --what-if alone prints
// its own lines.
void print_explanation(const PlanRequest& request, const PlanAnswer& answer, Output& output);
void print_changes(const PlanRequest& request, const PlanAnswer& answer, Output& output);

// A bar for each pipeline rank of the best layout, by class, and the same as a picture.
void print_memory(const PlanAnswer& answer, Output& output);
std::string memory_svg(const PlanRequest& request, const PlanRow& row);

Json plan_json(const Args& args, const PlanRequest& request, const PlanAnswer& answer);

Json row_json(const Args& args, const PlanRow& row);  // one of its plans

// A run file in JSON, to be written as --out says, for `lockstep train`.
Json run_json(const Args& args, const PlanRequest& request, const PlanRow& row);

// "out of memory in 4 % of runs like it". REQUIRES: nothing was walked.
std::string runs_out(const PlanRow& row);

std::string gibibytes(double bytes);       // "71.3 GiB", "2.31 MiB" of less than 0.1 GiB
std::string amount(double value);          // "1.02 M", "15 T": three digits and a decimal prefix
std::string signed_percent(double share);  // "+12.3 %"; "0.0 %" has no sign
// Degrees, sharding, schedule and recompute: "tp8 pp16 dp128 zero1 interleaved x8".
std::string short_name(const planner::Finalist& finalist);

// Other choices and other machines beside the best layout, for text and for a page.
std::vector<planner::Alternative> near_to(const PlanRequest& request, const PlanRow& best);
std::vector<planner::Alternative> with_more(const PlanRequest& request, const PlanRow& best);
std::vector<planner::Alternative> with_changes(const PlanRequest& request, const PlanRow& best);
std::vector<planner::Finalist> of_as_many_devices(const PlanAnswer& answer);  // as the best has
// How much longer a token takes, as a share; and in which terms, or why there is no such layout.
double slower(const PlanRow& best, const planner::Finalist& other);
std::string reason(const PlanRow& best, const planner::Alternative& other);

}  // namespace lockstep::cli
