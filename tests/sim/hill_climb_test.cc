#include "lockstep/sim/hill_climb.h"

#include <gtest/gtest.h>

#include <iostream>

#include "lockstep/schedule/generators/generators.h"
#include "lockstep/sim/list_scheduler.h"
#include "lockstep/sim/lower_bound.h"
#include "lockstep/sim/refill.h"
#include "tests/sim/random_problem.h"

namespace lockstep::sim {
namespace {

TEST(HillClimb, NeverLosesAndKeepsTheCap) {
  schedule::Dice dice(9);
  int cases = 0, faster = 0;
  for (; cases < 80; ++cases) {
    const schedule::Shape shape = {dice.between(1, 5), dice.between(1, 3), dice.between(1, 8)};
    const StageProblem problem = random_problem(dice, shape);
    const auto start = list_schedule(problem, {});
    const Climb climbed = climb(start, problem, 500);
    const Seconds before = simulate_stages(start, problem.costs).makespan;
    const StageTimes after = simulate_stages(climbed.schedule, problem.costs);
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
    const schedule::Shape shape = {4, 2, m};
    const StageProblem problem = {shape, schedule::Placement::kV,
                                  even_costs(shape, {60}, {60}, {60}), 6};
    const auto half = refill(*schedule::v_half(shape), problem.costs, problem.max_held);
    EXPECT_EQ(simulate_stages(*half, problem.costs).bubble().value, 4.5 * 60);
    const Climb climbed = climb(*half, problem, 3000);
    const StageTimes times = simulate_stages(climbed.schedule, problem.costs);
    EXPECT_LE(times.bubble().value, 3.5 * 60);
    EXPECT_LE(times.max_peak(), 6);
  }
}

// What is known to be the best comes back as it was.
TEST(HillClimb, LeavesAnOptimumAlone) {
  const schedule::Shape shape = {4, 1, 8};
  const auto zb = *schedule::zb_h1(shape);
  const Climb climbed =
      climb(zb, {shape, schedule::Placement::kLoop, even_costs(shape, {60}, {60}, {60}), 4}, 1000);
  EXPECT_EQ(climbed.moves, 0);
  EXPECT_EQ(climbed.schedule, zb);
}

}  // namespace
}  // namespace lockstep::sim
