#include "lockstep/sim/exhaustive.h"

#include <gtest/gtest.h>

#include <iostream>
#include <limits>

#include "tests/sim/oracle.h"
#include "tests/sim/random_problem.h"

namespace lockstep::sim {
namespace {

constexpr Seconds kAnyTime = {std::numeric_limits<double>::infinity()};
constexpr std::int64_t kPlenty = 1'000'000;

// Two chunks and more, where room for F is what makes the search hard; one chunk is in
// auto_schedule_test.
TEST(Exhaustive, FindsWhatTheOracleFindsAndNoLess) {
  schedule::Dice dice(3);
  std::int64_t visits = 0;
  int cases = 0;
  for (const schedule::Shape& shape : {schedule::Shape{2, 2, 2}, {2, 2, 3}, {3, 2, 2}, {2, 3, 2}})
    for (int i = 0; i < 25; ++i, ++cases) {
      const StageProblem problem = random_problem(dice, shape);
      const Search search = search_all(problem, kAnyTime, kPlenty);
      ASSERT_TRUE(search.is_complete && search.faster);
      visits = std::max(visits, search.visits);
      const StageTimes times = simulate_stages(*search.faster, problem.costs);
      EXPECT_LE(times.max_peak(), problem.max_held);
      const int makespan = static_cast<int>(times.makespan.value);
      EXPECT_TRUE(exists_within(problem, makespan)) << "case " << cases;
      EXPECT_FALSE(exists_within(problem, makespan - 1)) << "case " << cases;
    }
  std::cout << cases << " optima of several chunks, at most " << visits << " visits\n";
}

TEST(Exhaustive, SaysWhenNothingIsFasterAndWhenItGaveUp) {
  schedule::Dice dice(4);
  for (int i = 0; i < 40; ++i) {
    const StageProblem problem = random_problem(dice, {3, 1, 4});
    const Search search = search_all(problem, kAnyTime, kPlenty);
    const Seconds best = simulate_stages(*search.faster, problem.costs).makespan;
    const Search again = search_all(problem, best, kPlenty);
    EXPECT_TRUE(again.is_complete && !again.faster);
    const Search beyond = search_all(problem, best + Seconds{1}, kPlenty);
    EXPECT_EQ(simulate_stages(beyond.faster.value(), problem.costs).makespan, best);
    EXPECT_FALSE(search_all(problem, kAnyTime, 20).is_complete);
  }
}

}  // namespace
}  // namespace lockstep::sim
