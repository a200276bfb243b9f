#include "lockstep/pipeline/search/candidates.h"

#include <algorithm>
#include <vector>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/search/list_scheduler.h"

namespace lockstep::pipeline {
namespace {

using Try = std::function<void(const std::string&, const Schedule&)>;

std::vector<int> group_sizes(const Shape& shape) {
  const int p = shape.coords, m = shape.microbatches;
  std::vector<int> sizes;
  for (int size = p + 1; size < m; ++size)
    if (size <= 2 * p || size % p == 0) sizes.push_back(size);
  if (m != p) sizes.push_back(m);
  return sizes;
}

void try_catalog(const StageProblem& problem, const Try& try_one) {
  const auto offer = [&](const std::string& name, const Result<Schedule>& made) {
    if (made.ok() && made->placement() == problem.placement) try_one(name, *made);
  };
  for (const CatalogRow& row : catalog()) {
    const std::string name(row.name);
    offer(name, row.build(problem.shape));
    if (row.build_grouped == nullptr || problem.shape.chunks == 1) continue;
    for (const int size : group_sizes(problem.shape))
      offer(name + " in groups of " + std::to_string(size), row.build_grouped(problem.shape, size));
  }
}

void try_warm_ups(const StageProblem& problem, const Try& try_one) {
  const int p = problem.shape.coords;
  if (problem.shape.chunks != 1 || problem.placement != Placement::kLoop) return;
  for (int more = 1; more + 1 < p; ++more) {
    std::vector<int> warm_ups;
    for (int r = 0; r < p; ++r) warm_ups.push_back(p - 1 - r + std::min(more, p - 1 - r));
    try_one("1f1b with " + std::to_string(more) + " more to warm up",
            alternating(problem.shape, warm_ups).value());
  }
}

void try_lists(const StageProblem& problem, const std::string& name, const Try& try_one) {
  using First = ListRules::First;
  using Chunk = ListRules::Chunk;
  using Room = ListRules::Room;
  for (const First first : {First::kInputGrad, First::kForward})
    for (const Chunk chunk : {Chunk::kDeepest, Chunk::kShallowest})
      for (const Room room : {Room::kEqual, Room::kTapered}) {
        if (problem.shape.chunks == 1 && chunk != Chunk::kDeepest) continue;
        std::string rules = name;
        if (first == First::kForward) rules += ", F first";
        if (chunk == Chunk::kShallowest) rules += ", shallow virtual stages first";
        if (room == Room::kTapered) rules += ", tapered room";
        try_one(rules, list_schedule(problem, {first, chunk, room}));
      }
}

StageProblem with_even_costs(StageProblem problem) {
  sim::StageCosts& costs = problem.costs;
  for (auto* times : {&costs.forward, &costs.input_grad, &costs.weight_grad})
    std::ranges::fill(*times, Seconds{1});
  costs.hop = {};
  return problem;
}

}  // namespace

void for_each_candidate(const StageProblem& problem, const Try& try_one) {
  try_catalog(problem, try_one);
  try_warm_ups(problem, try_one);
  try_lists(problem, "list scheduler", try_one);
  try_lists(with_even_costs(problem), "list scheduler on even costs", try_one);
}

}  // namespace lockstep::pipeline
