// The fastest schedule of a small problem, by looking at all that could be faster.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/units.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/pipeline/search/stage_problem.h"

namespace lockstep::pipeline {

struct Search {
  std::optional<Schedule> faster;  // the fastest found; nothing: none found
  bool is_complete = false;        // whether no schedule is faster than `faster`, or than `limit`
};

// Seeks a schedule that takes less than `limit` and gives up after `max_visits` states. B is not
// tried: its I alone makes the gradient sooner. Nor is F out of microbatch order: passes of a stage
// cost the same for all microbatches, so if F ran in another order, handing the same times out in
// ascending order keeps every F behind the one it waits for and before its I.
//
// Branch and bound over which pass runs next on a pipeline rank, where the list so far fixes all
// times so far (a pass never starts later than it can). Of all passes that can be next, the one
// that ends first, at time e, decides the pipeline rank; another that would start there at e or
// later need not be tried, because the first fits before it: Giffler and Thompson, "Algorithms for
// solving production- scheduling problems", 1960. That holds for I and W, and for F when the room
// it takes cannot be missed before its turn: with one chunk, or where all F to come fit. Any other
// F is tried as the next and as not the next. A state is left when a bound on what remains reaches
// the best so far, or when one with the same passes done was searched that had every time at least
// as early.
Search search_all(const StageProblem& problem, Seconds limit, std::int64_t max_visits);

}  // namespace lockstep::pipeline
