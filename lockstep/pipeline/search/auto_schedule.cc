#include "lockstep/pipeline/search/auto_schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/search/candidates.h"
#include "lockstep/pipeline/search/exhaustive.h"
#include "lockstep/pipeline/search/hill_climb.h"
#include "lockstep/pipeline/search/lower_bound.h"
#include "lockstep/pipeline/search/refill.h"

namespace lockstep::pipeline {
namespace {

// A climb times about this many F, I and W, and tries no more often than that.
constexpr int kClimbPasses = 17'000'000, kMostTries = 60'000;
// Larger shapes are searched for a while, which often is enough; yet larger ones not at all.
constexpr int kSearchedPasses = 4 * kExhaustivePasses;
constexpr std::int64_t kVisits = 20'000;

Error refuse(std::string message, std::string help) {
  return {Code::kOutOfRange, std::move(message), std::move(help)};
}

Result<void> check_costs(const ChunkOption& option, int stages) {
  const std::pair<const char*, const std::vector<Seconds>&> fields[] = {
      {"forward", option.costs.forward},
      {"input_grad", option.costs.input_grad},
      {"weight_grad", option.costs.weight_grad}};
  const auto is_time = [](Seconds time) { return time.value >= 0 && std::isfinite(time.value); };
  for (const auto& [name, costs] : fields) {
    const std::string field = join_parts("costs.", name, " of ", option.chunks, " virtual stages ");
    if (costs.size() != static_cast<std::size_t>(stages))
      return refuse(join_parts(field, "has ", costs.size(), " entries for ", stages, " stages"),
                    "give one for each stage");
    const auto wrong = std::ranges::find_if_not(costs, is_time);
    if (wrong != costs.end())
      return refuse(join_parts(field, "has ", wrong->value, " s for stage ", wrong - costs.begin()),
                    "give 0 or more");
  }
  if (!is_time(option.costs.hop))
    return refuse(join_parts("costs.hop is ", option.costs.hop.value, " s"), "give 0 or more");
  return {};
}

// One for each option that can hold a microbatch and each placement of its chunks.
Result<std::vector<StageProblem>> problems_of(const AutoRequest& request) {
  if (request.options.empty()) return refuse("there are no options", "give at least one");
  std::vector<StageProblem> problems;
  std::string too_little;
  for (const ChunkOption& option : request.options) {
    const Shape shape = {request.coords, option.chunks, request.microbatches};
    LS_TRY(check_shape(shape));
    LS_TRY(check_costs(option, shape.stages()));
    if (option.max_held < option.chunks) {
      too_little += join_parts(too_little.empty() ? "" : ", ", "max_held = ", option.max_held,
                               " of ", option.chunks, " virtual stages");
      continue;
    }
    problems.push_back({shape, Placement::kLoop, option.costs, option.max_held});
    if (option.chunks > 1)
      problems.push_back({shape, Placement::kV, option.costs, option.max_held});
  }
  if (problems.empty())
    return refuse(
        "no schedule fits into " + too_little,
        "max_held is at least the virtual stages: one microbatch leaves an activation in each");
  return problems;
}

struct Found {
  const StageProblem* problem;
  Schedule schedule;
  std::string origin;
  Seconds makespan;
};

std::optional<Found> best_candidate(const StageProblem& problem) {
  std::optional<Found> best;
  for_each_candidate(problem, [&](const std::string& name, const Schedule& plain) {
    const auto made = refill(plain, problem.costs, problem.max_held);
    if (!made.ok()) return;
    const Seconds makespan = sim::simulate_stages(*made, problem.costs).makespan;
    if (best && makespan >= best->makespan) return;
    best = {&problem, *made, *made == plain ? name : name + ", refilled", makespan};
  });
  return best;
}

void climb_from(Found& found) {
  const StageProblem& problem = *found.problem;
  const int passes = problem.shape.stages() * problem.shape.microbatches;
  if (passes <= kExhaustivePasses) return;  // the search will find the best
  const int tries = std::min(kMostTries, kClimbPasses / passes);
  Climb climbed = climb(found.schedule, problem, tries);
  if (climbed.moves == 0) return;
  found.makespan = sim::simulate_stages(climbed.schedule, problem.costs).makespan;
  found.schedule = std::move(climbed.schedule);
  found.origin += join_parts(", ", climbed.moves, climbed.moves == 1 ? " move" : " moves");
}

// Looks for what is faster than `best`, and says what no schedule of the problem beats.
Seconds search(Found& best, const StageProblem& problem) {
  const Seconds bound = lower_bound(problem);
  const int passes = problem.shape.stages() * problem.shape.microbatches;
  if (reaches(best.makespan, bound)) return best.makespan;
  if (passes > kSearchedPasses) return bound;
  Search result =
      search_all(problem, best.makespan,
                 passes <= kExhaustivePasses ? std::numeric_limits<std::int64_t>::max() : kVisits);
  if (result.faster) {
    const Seconds makespan = sim::simulate_stages(*result.faster, problem.costs).makespan;
    best = {&problem, *std::move(result.faster), "exhaustive search", makespan};
  }
  return result.is_complete ? best.makespan : bound;
}

}  // namespace

Result<AutoChoice> auto_schedule(const AutoRequest& request) {
  const std::vector<StageProblem> problems = LS_TRY(problems_of(request));
  std::optional<Found> best;
  for (const StageProblem& problem : problems) {
    if (best && reaches(best->makespan, lower_bound(problem))) continue;
    std::optional<Found> found = best_candidate(problem);
    climb_from(*found);
    if (!best || found->makespan < best->makespan) best = std::move(found);
  }
  Seconds bound = best->makespan;
  for (const StageProblem& problem : problems) bound = std::min(bound, search(*best, problem));
  sim::StageTimes times = sim::simulate_stages(best->schedule, best->problem->costs);
  return AutoChoice{std::move(best->schedule), std::move(best->origin), std::move(times), bound};
}

}  // namespace lockstep::pipeline
