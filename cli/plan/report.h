// What `lockstep plan` prints of an answer.
#pragma once

#include <string>

#include "cli/plan/answer.h"
#include "cli/verb.h"

namespace lockstep::cli {

// Table, the best layout in detail, warnings.
void print_plan(const Args& args, const PlanRequest& request, const PlanAnswer& answer,
                Output& output);

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

std::string gibibytes(double bytes);  // "71.3 GiB", "2.31 MiB" of less than 0.1 GiB
std::string amount(double value);     // "1.02 M", "15 T": three digits and a decimal prefix
// Degrees, sharding, schedule and recompute: "tp8 pp16 dp128 zero1 interleaved x8".
std::string short_name(const planner::Finalist& finalist);

}  // namespace lockstep::cli
