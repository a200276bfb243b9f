#include "lockstep/pipeline/search/exhaustive.h"

#include <gtest/gtest.h>

#include <iostream>
#include <limits>

#include "tests/pipeline/search/oracle.h"
#include "tests/pipeline/search/random_problem.h"

namespace lockstep::pipeline {
namespace {

constexpr Seconds kAnyTime = {std::numeric_limits<double>::infinity()};
constexpr std::int64_t kPlenty = 1'000'000;

// Two chunks and more, where room for F is what makes the search hard; one chunk is in
// auto_schedule_test.
TEST(Exhaustive, FindsWhatTheOracleFindsAndNoLess) {
  program::Dice dice(3);
  int cases = 0;
  for (const pipeline::Shape& shape : {pipeline::Shape{2, 2, 2}, {2, 2, 3}, {3, 2, 2}, {2, 3, 2}})
    for (int i = 0; i < 25; ++i, ++cases) {
      const StageProblem problem = random_problem(dice, shape);
      const Search search = search_all(problem, kAnyTime, kPlenty);
      ASSERT_TRUE(search.is_complete && search.faster);
      const sim::StageTimes times = sim::simulate_stages(*search.faster, problem.costs);
      EXPECT_LE(times.max_peak(), problem.max_held);
      const int makespan = static_cast<int>(times.makespan.value);
      EXPECT_TRUE(exists_within(problem, makespan)) << "case " << cases;
      EXPECT_FALSE(exists_within(problem, makespan - 1)) << "case " << cases;
    }
  std::cout << cases << " optima of several virtual stages\n";
}

TEST(Exhaustive, SaysWhenNothingIsFasterAndWhenItGaveUp) {
  program::Dice dice(4);
  for (int i = 0; i < 40; ++i) {
    const StageProblem problem = random_problem(dice, {3, 1, 4});
    const Search search = search_all(problem, kAnyTime, kPlenty);
    const Seconds best = sim::simulate_stages(*search.faster, problem.costs).makespan;
    const Search again = search_all(problem, best, kPlenty);
    EXPECT_TRUE(again.is_complete && !again.faster);
    const Search beyond = search_all(problem, best + Seconds{1}, kPlenty);
    EXPECT_EQ(sim::simulate_stages(beyond.faster.value(), problem.costs).makespan, best);
    EXPECT_FALSE(search_all(problem, kAnyTime, 20).is_complete);
  }
}

}  // namespace
}  // namespace lockstep::pipeline
