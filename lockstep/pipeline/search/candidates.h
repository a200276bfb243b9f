// Schedules worth trying for a problem, before costs and memory have shaped them.
#pragma once

#include <functional>
#include <string>

#include "lockstep/pipeline/schedule.h"
#include "lockstep/pipeline/search/stage_problem.h"

namespace lockstep::pipeline {

// Hands `try_one` the name and the schedule of each that has the problem's shape and placement:
//   - rows of the catalogue in their order; those with groups also with every size from the number
//     of pipeline ranks to twice that, with every multiple of it, and with one group;
//   - 1f1b whose coordinate r warms up with k more passes F, at most p-1-r, for k = 1 .. p-2; k =
//     p-1 is eager-1f1b;
//   - the list scheduler under each of its rules, for the costs and as if all passes took the same
//     and hops nothing: that finds regular orders, which uneven times hide and hardly hurt.
// They may hold more than max_held; those of the list scheduler do not.
void for_each_candidate(
    const StageProblem& problem,
    const std::function<void(const std::string& name, const Schedule& schedule)>& try_one);

}  // namespace lockstep::pipeline
