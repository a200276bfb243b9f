#include "lockstep/pipeline/search/hill_climb.h"

#include <gtest/gtest.h>

#include <iostream>

#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/search/list_scheduler.h"
#include "lockstep/pipeline/search/lower_bound.h"
#include "lockstep/pipeline/search/refill.h"
#include "tests/pipeline/search/random_problem.h"

namespace lockstep::pipeline {
namespace {

TEST(HillClimb, NeverLosesAndKeepsTheCap) {
  program::Dice dice(9);
  int cases = 0, faster = 0;
  for (; cases < 80; ++cases) {
    const pipeline::Shape shape = {dice.between(1, 5), dice.between(1, 3), dice.between(1, 8)};
    const StageProblem problem = random_problem(dice, shape);
    const auto start = list_schedule(problem, {});
    const Climb climbed = climb(start, problem, 500);
    const Seconds before = sim::simulate_stages(start, problem.costs).makespan;
    const sim::StageTimes after = sim::simulate_stages(climbed.schedule, problem.costs);
    EXPECT_LE(after.max_peak(), problem.max_held) << "case " << cases;
    EXPECT_GE(after.makespan, lower_bound(problem));
    if (climbed.moves == 0) {
      EXPECT_EQ(climbed.schedule, start);
    } else {
      EXPECT_LT(after.makespan, before);
      ++faster;
    }
  }
  std::cout << faster << " of " << cases << " list schedules climbed\n";
  EXPECT_GE(faster, cases / 4);
}

TEST(HillClimb, TakesVHalfFrom4AndAHalfTo3AndAHalf) {
  for (const int m : {8, 12, 16}) {
    const pipeline::Shape shape = {4, 2, m};
    const StageProblem problem = {shape, pipeline::Placement::kV,
                                  sim::even_costs(shape, {60}, {60}, {60}), 6};
    const auto half = refill(*pipeline::v_half(shape), problem.costs, problem.max_held);
    EXPECT_EQ(sim::simulate_stages(*half, problem.costs).bubble().value, 4.5 * 60);
    const Climb climbed = climb(*half, problem, 3000);
    const sim::StageTimes times = sim::simulate_stages(climbed.schedule, problem.costs);
    EXPECT_LE(times.bubble().value, 3.5 * 60);
    EXPECT_LE(times.max_peak(), 6);
  }
}

// What is known to be the best comes back as it was.
TEST(HillClimb, LeavesAnOptimumAlone) {
  const pipeline::Shape shape = {4, 1, 8};
  const auto zb = *pipeline::zb_h1(shape);
  const Climb climbed = climb(
      zb, {shape, pipeline::Placement::kLoop, sim::even_costs(shape, {60}, {60}, {60}), 4}, 1000);
  EXPECT_EQ(climbed.moves, 0);
  EXPECT_EQ(climbed.schedule, zb);
}

}  // namespace
}  // namespace lockstep::pipeline
