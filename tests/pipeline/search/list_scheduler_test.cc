#include "lockstep/pipeline/search/list_scheduler.h"

#include <gtest/gtest.h>

#include "lockstep/pipeline/search/lower_bound.h"
#include "tests/pipeline/search/random_problem.h"

namespace lockstep::pipeline {
namespace {

using First = ListRules::First;
using Chunk = ListRules::Chunk;
using Room = ListRules::Room;

// That a schedule comes out at all shows that memory blocked nothing: Schedule::create checks the
// rest.
TEST(ListScheduler, KeepsTheCapUnderAllRules) {
  program::Dice dice(7);
  for (int i = 0; i < 60; ++i) {
    const pipeline::Shape shape = {dice.between(1, 6), dice.between(1, 4), dice.between(1, 9)};
    const StageProblem problem = random_problem(dice, shape);
    for (const First first : {First::kInputGrad, First::kForward})
      for (const Chunk chunk : {Chunk::kDeepest, Chunk::kShallowest})
        for (const Room room : {Room::kEqual, Room::kTapered}) {
          const auto made = list_schedule(problem, {first, chunk, room});
          const sim::StageTimes times = sim::simulate_stages(made, problem.costs);
          EXPECT_LE(times.max_peak(), problem.max_held);
          EXPECT_GE(times.makespan, lower_bound(problem));
        }
  }
}

TEST(ListScheduler, RunsOneMicrobatchAfterTheOtherInTheLeastRoom) {
  program::Dice dice(8);
  for (int i = 0; i < 40; ++i) {
    StageProblem problem = random_problem(dice, {dice.between(1, 5), 1, dice.between(1, 6)});
    problem.max_held = 1;
    const auto made = list_schedule(problem, {});
    EXPECT_EQ(sim::simulate_stages(made, problem.costs).max_peak(), 1);
    EXPECT_EQ(sim::simulate_stages(made, problem.costs).makespan, lower_bound(problem));
  }
}

// With room for everything and one chunk, F first is gpipe.
TEST(ListScheduler, PrefersWhatItIsTold) {
  const pipeline::Shape shape = {1, 1, 3};
  const StageProblem problem = {shape, pipeline::Placement::kLoop,
                                sim::even_costs(shape, {1}, {1}, {1}), 3};
  EXPECT_EQ(to_text(list_schedule(problem, {.first = First::kForward})),
            "0F0,0F1,0F2,0I0,0I1,0I2,0W0,0W1,0W2\n");
  EXPECT_EQ(to_text(list_schedule(problem, {})), "0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2\n");
  const pipeline::Shape two = {1, 2, 2};
  const StageProblem chunks = {two, pipeline::Placement::kV, sim::even_costs(two, {1}, {1}, {1}),
                               4};
  EXPECT_EQ(to_text(list_schedule(chunks, {First::kForward, Chunk::kShallowest, Room::kEqual})),
            "0F0,0F1,1F0,1F1,1I0,0I0,1I1,0I1,1W0,1W1,0W0,0W1\n");
}

}  // namespace
}  // namespace lockstep::pipeline
