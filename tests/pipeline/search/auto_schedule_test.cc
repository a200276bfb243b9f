#include "lockstep/pipeline/search/auto_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <optional>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/search/refill.h"
#include "tests/pipeline/search/oracle.h"
#include "tests/pipeline/search/random_problem.h"

namespace lockstep::pipeline {
namespace {

using pipeline::Placement;
using pipeline::Shape;

AutoRequest request_for(const StageProblem& problem) {
  const Shape& shape = problem.shape;
  return {shape.coords, shape.microbatches, {{shape.chunks, problem.costs, problem.max_held}}};
}

// Whether any schedule of the request takes at most `limit`, whatever its placement.
bool exists_within(const AutoRequest& request, int limit) {
  for (const ChunkOption& option : request.options)
    for (const Placement placement : {Placement::kLoop, Placement::kV}) {
      if (option.max_held < option.chunks) continue;
      const Shape shape = {request.coords, option.chunks, request.microbatches};
      if (exists_within(StageProblem{shape, placement, option.costs, option.max_held}, limit))
        return true;
    }
  return false;
}

void expect_optimal(const AutoRequest& request, int number) {
  const auto choice = auto_schedule(request);
  ASSERT_TRUE(choice.ok()) << choice.error().message;
  const auto option =
      std::ranges::find(request.options, choice->schedule.shape().chunks, &ChunkOption::chunks);
  const sim::StageTimes times = sim::simulate_stages(choice->schedule, option->costs);
  EXPECT_LE(times.max_peak(), option->max_held) << "case " << number;
  EXPECT_EQ(times.makespan, choice->times.makespan);
  EXPECT_EQ(times.makespan, choice->lower_bound) << "case " << number << " is not proved";
  const int makespan = static_cast<int>(times.makespan.value);
  EXPECT_TRUE(exists_within(request, makespan)) << "the oracle is blind, case " << number;
  EXPECT_FALSE(exists_within(request, makespan - 1))
      << "case " << number << ": " << choice->origin << "\n"
      << to_text(choice->schedule);
}

TEST(AutoScheduleLong, IsTheOptimumOfSmallShapes) {
  program::Dice dice(1);
  int cases = 0;
  for (int p = 1; p <= 3; ++p)
    for (int m = 1; m <= 4; ++m)
      for (int i = 0; i < (p > 1 && m > 1 ? 40 : 6); ++i)
        expect_optimal(request_for(random_problem(dice, {p, 1, m})), cases++);
  std::cout << cases << " optima with one virtual stage\n";
  EXPECT_GE(cases, 200);
}

TEST(AutoSchedule, IsTheOptimumOverPlacementsAndChunks) {
  program::Dice dice(2);
  int cases = 0;
  for (const Shape& shape : {Shape{2, 2, 2}, {2, 2, 3}, {3, 2, 2}})
    for (int i = 0; i < 15; ++i) {
      AutoRequest request = request_for(random_problem(dice, shape));
      if (i % 3 == 0) {
        const StageProblem other = random_problem(dice, {shape.coords, 1, shape.microbatches});
        request.options.push_back({1, other.costs, other.max_held});
      }
      expect_optimal(request, cases++);
    }
  std::cout << cases << " optima with two virtual stages, some beside one\n";
}

struct HopMix {
  double f, i, w, hop;
};
constexpr HopMix kHopMixes[] = {{240, 240, 240, 0}, {240, 288, 192, 12}, {240, 480, 240, 48}};

// The fastest that the catalogue has for this, refilled or not.
std::optional<Seconds> best_named(const Shape& shape, const sim::StageCosts& costs, int max_held) {
  std::optional<Seconds> best;
  const auto offer = [&](const pipeline::Schedule& made) {
    const sim::StageTimes times = sim::simulate_stages(made, costs);
    if (times.max_peak() <= max_held && (!best || times.makespan < *best)) best = times.makespan;
  };
  for (const pipeline::CatalogRow& row : pipeline::catalog()) {
    const auto plain = row.build(shape);
    if (!plain.ok()) continue;
    offer(*plain);
    if (const auto made = refill(*plain, costs, max_held); made.ok()) offer(*made);
  }
  return best;
}

// Whether the choice is faster than any named schedule; it is not slower.
bool is_faster_than_named(const Shape& shape, const sim::StageCosts& costs, int held) {
  const auto choice =
      auto_schedule(
          {shape.coords, shape.microbatches, {{shape.chunks, costs, held * shape.chunks}}})
          .value();
  const Seconds makespan = choice.times.makespan;
  EXPECT_LE(choice.times.max_peak(), held * shape.chunks);
  EXPECT_LE(choice.lower_bound, makespan);
  const auto named = best_named(shape, costs, held * shape.chunks);
  if (named) {
    EXPECT_LE(makespan, *named) << choice.origin;
  }
  std::cout << strf(
      "p %2d m %2d virtual stages %d held %2d: gap %4.1f %%, best named %+5.1f %%, %s\n",
      shape.coords, shape.microbatches, shape.chunks, held,
      100 * (makespan.value / choice.lower_bound.value - 1),
      named ? 100 * (named->value / makespan.value - 1) : INFINITY, choice.origin.c_str());
  return !named || makespan < *named;
}

TEST(AutoScheduleLong, NeverLosesToANamedScheduleAndSaysTheGap) {
  int cases = 0, faster = 0;
  for (const int p : {4, 8, 16})
    for (const int m : {p, 2 * p, 4 * p})
      for (const int chunks : {1, 2}) {
        const HopMix& mix = kHopMixes[(cases / 2 + p) % 3];
        const Shape shape = {p, chunks, m};
        sim::StageCosts costs = sim::even_costs(shape, {mix.f}, {mix.i}, {mix.w}, {mix.hop});
        costs.forward.back() += {60};  // the head
        const int held = std::array{p * 5 / 8, p, p * 3 / 2}[static_cast<std::size_t>(cases) % 3];
        faster += is_faster_than_named(shape, costs, held) ? 1 : 0;
        ++cases;
      }
  std::cout << cases << " choices, " << faster << " faster than any named schedule\n";
  EXPECT_GE(faster, cases / 4);
}

TEST(AutoSchedule, ReachesKnownBubbles) {
  const auto bubble = [](int p, int chunks, int m, int held) {
    const Shape shape = {p, chunks, m};
    const auto choice =
        auto_schedule({p, m, {{chunks, sim::even_costs(shape, {60}, {60}, {60}), held}}});
    return choice->times.bubble().value / 60;
  };
  EXPECT_EQ(bubble(8, 1, 32, 8), 7);
  EXPECT_EQ(bubble(8, 2, 32, 16), 3.5);
  EXPECT_LE(bubble(4, 2, 16, 6), 3.5);
  EXPECT_EQ(bubble(1, 1, 5, 1), 0);
}

TEST(AutoSchedule, IsTheSameEveryTime) {
  program::Dice dice(12);
  const AutoRequest request = request_for(random_problem(dice, {4, 2, 9}));
  const auto first = auto_schedule(request), second = auto_schedule(request);
  EXPECT_EQ(first->schedule, second->schedule);
  EXPECT_EQ(first->origin, second->origin);
}

TEST(AutoSchedule, NamesTheLeastThatFits) {
  AutoRequest request = {2, 4, {{2, sim::even_costs({2, 2, 4}, {1}, {1}, {1}), 1}}};
  const auto refused = auto_schedule(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kOutOfRange);
  EXPECT_EQ(refused.error().message, "no schedule fits into max_held = 1 of 2 virtual stages");
  EXPECT_EQ(refused.error().help,
            "max_held is at least the virtual stages: one microbatch leaves an activation in each");
  request.options[0].max_held = 2;
  EXPECT_TRUE(auto_schedule(request).ok());
}

TEST(AutoSchedule, RefusesWhatIsNoRequest) {
  const AutoRequest good = {2, 2, {{1, sim::even_costs({2, 1, 2}, {1}, {1}, {1}), 2}}};
  const auto refusal = [&](const auto& change) {
    AutoRequest bad = good;
    change(bad);
    const auto refused = auto_schedule(bad);
    EXPECT_FALSE(refused.ok());
    return refused.error().message;
  };
  EXPECT_TRUE(auto_schedule(good).ok());
  EXPECT_EQ(refusal([](AutoRequest& r) { r.options.clear(); }), "there are no options");
  EXPECT_EQ(refusal([](AutoRequest& r) { r.coords = 0; }), "pipeline ranks = 0 is less than 1");
  EXPECT_EQ(refusal([](AutoRequest& r) { r.options[0].costs.forward.pop_back(); }),
            "costs.forward of 1 virtual stages has 1 entries for 2 stages");
  EXPECT_EQ(refusal([](AutoRequest& r) { r.options[0].costs.weight_grad[1] = {-1}; }),
            "costs.weight_grad of 1 virtual stages has -1 s for stage 1");
  EXPECT_EQ(refusal([](AutoRequest& r) { r.options[0].costs.hop = {-2}; }), "costs.hop is -2 s");
}

}  // namespace
}  // namespace lockstep::pipeline
