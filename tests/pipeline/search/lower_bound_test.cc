#include "lockstep/pipeline/search/lower_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/search/refill.h"
#include "tests/pipeline/search/oracle.h"
#include "tests/pipeline/search/random_problem.h"

namespace lockstep::pipeline {
namespace {

// The oracle finds nothing below the bound, and how often it finds something at the bound is
// printed.
TEST(LowerBoundLong, IsNeverAboveTheOptimum) {
  program::Dice dice(5);
  int cases = 0, tight = 0;
  for (const pipeline::Shape& shape : {pipeline::Shape{1, 1, 3},
                                       {2, 1, 2},
                                       {2, 1, 4},
                                       {3, 1, 2},
                                       {3, 1, 3},
                                       {4, 1, 2},
                                       {1, 2, 2},
                                       {2, 2, 2},
                                       {3, 2, 1}})
    for (int i = 0; i < 25; ++i, ++cases) {
      const StageProblem problem = random_problem(dice, shape);
      const int bound = static_cast<int>(std::ceil(lower_bound(problem).value));
      EXPECT_FALSE(exists_within(problem, bound - 1)) << "case " << cases;
      tight += exists_within(problem, bound) ? 1 : 0;
    }
  std::cout << cases << " bounds, " << tight << " reached by an optimum\n";
  EXPECT_GE(tight, cases / 2);
}

TEST(LowerBound, IsNeverAboveANamedSchedule) {
  program::Dice dice(6);
  int cases = 0, tight = 0;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (const pipeline::Shape& shape : {pipeline::Shape{2, 1, 5},
                                         {4, 1, 9},
                                         {8, 1, 16},
                                         {5, 1, 3},
                                         {4, 2, 8},
                                         {3, 2, 7},
                                         {8, 2, 16},
                                         {4, 3, 8}}) {
      const auto plain = row.build(shape);
      if (!plain.ok()) continue;
      for (int i = 0; i < 6; ++i, ++cases) {
        StageProblem problem = random_problem(dice, shape);
        problem.placement = plain->placement();
        problem.max_held = sim::simulate_stages(*plain, problem.costs).max_peak();
        const auto made = refill(*plain, problem.costs, problem.max_held);
        const Seconds makespan = sim::simulate_stages(*made, problem.costs).makespan;
        const Seconds bound = lower_bound(problem);
        EXPECT_LE(bound, makespan) << row.name << " case " << cases;
        tight += bound == makespan ? 1 : 0;
      }
    }
  std::cout << cases << " refilled schedules, " << tight << " at the bound\n";
}

// Known optima at equal times: (p-1) tF with one chunk and room for p, half of it with two.
TEST(LowerBound, IsTightWhereTheOptimumIsKnown) {
  for (int p = 2; p <= 16; ++p)
    for (const int m : {p, 2 * p, 4 * p}) {
      const auto bubble = [&](int chunks, pipeline::Placement placement) {
        const pipeline::Shape shape = {p, chunks, m};
        const auto costs = sim::even_costs(shape, {60}, {60}, {60});
        return lower_bound({shape, placement, costs, p * chunks}).value - m * 180;
      };
      EXPECT_EQ(bubble(1, pipeline::Placement::kLoop), (p - 1) * 60);
      EXPECT_EQ(bubble(2, pipeline::Placement::kLoop), (p - 1) * 30);
      EXPECT_EQ(bubble(2, pipeline::Placement::kV), (p - 1) * 30);
    }
}

// With costs that are no whole numbers sums are off, and the bound must not be above them for that.
TEST(LowerBound, AllowsForRounding) {
  for (int p = 2; p <= 12; ++p)
    for (const double time : {0.1, 1.0 / 3, 1e-3, 0.7e6}) {
      const pipeline::Shape shape = {p, 1, 5 * p};
      const sim::StageCosts costs = sim::even_costs(shape, {time}, {time}, {time});
      const Seconds bound = lower_bound({shape, pipeline::Placement::kLoop, costs, p});
      const auto made = refill(*pipeline::find("1f1b")->build(shape), costs, p);
      const Seconds makespan = sim::simulate_stages(*made, costs).makespan;
      EXPECT_LE(bound, makespan);
      EXPECT_TRUE(reaches(makespan, bound));
      EXPECT_FALSE(reaches(makespan * (1 + 1e-9), bound));
    }
}

}  // namespace
}  // namespace lockstep::pipeline
