#include "lockstep/pipeline/search/refill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <vector>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/program/deadlock.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/validate.h"

namespace lockstep::pipeline {
namespace {

using pipeline::CatalogRow;
using pipeline::Pass;
using pipeline::PassKind;
using pipeline::Schedule;

// Bubbles in units of tF at p = 8, m = 32, tF = tB = tW, for hops of 0, 0.05 and 0.2 tF; `refilled`
// columns are after refill at the schedule's own peak.
struct Column {
  const char* name;
  int chunks;
  bool refilled;
  double bubbles[3];
  double peak;
};
constexpr Column kTable[] = {
    {"1f1b", 1, false, {21, 24.4, 34.6}, 8},
    {"eager-1f1b", 1, false, {21, 21.7, 23.8}, 15},
    {"interleaved", 2, false, {10.5, 12, 16.5}, 11.5},
    {"interleaved", 4, false, {5.25, 8.35, 17.65}, 9.75},
    {"zb-h1", 1, false, {7, 8.4, 12.6}, 8},
    {"interleaved-zb", 2, false, {3.5, 5.3, 10.7}, 8},
    {"interleaved-zb", 4, false, {1.75, 4.35, 24.6}, 8},
    {"zbv", 2, true, {3.5, 4.55, 8.6}, 8},
    {"v-half", 2, true, {10.5, 13.8, 19.2}, 5},
    {"dualpipe-v", 2, true, {3.5, 4.05, 7.7}, 8.5},
    {"interleaved", 2, true, {3.5, 4.25, 6.5}, 11.5},
};

TEST(Refill, GivesTheTableOfBubbles) {
  constexpr double kTick = 240;  // of tF: a hundredth and a quarter of it are whole
  for (const Column& column : kTable)
    for (int h = 0; h < 3; ++h) {
      const double hop = std::array{0.0, 12.0, 48.0}[static_cast<std::size_t>(h)];
      const Schedule plain = *pipeline::find(column.name)->build({8, column.chunks, 32});
      const sim::StageCosts costs =
          sim::even_costs(plain.shape(), {kTick}, {kTick}, {kTick}, {hop});
      const int cap = sim::simulate_stages(plain, costs).max_peak();
      const Schedule made = column.refilled ? *refill(plain, costs, cap) : plain;
      const sim::StageTimes times = sim::simulate_stages(made, costs);
      EXPECT_EQ(times.bubble().value, std::round(column.bubbles[h] * kTick))
          << column.name << " v" << column.chunks << " hop " << hop;
      EXPECT_EQ(times.max_peak(), column.peak * column.chunks) << column.name;
    }
}

TEST(Refill, Of1f1bIsZbH1) {
  int cases = 0;
  for (int p = 2; p <= 12; ++p)
    for (const int m : {1, 2, 5, 8, 12, 17, 32})
      for (const auto& [f, i, w] : {std::array{60., 60., 60.},
                                    {60., 72., 48.},
                                    {60., 48., 72.},
                                    {60., 120., 60.},
                                    {60., 60., 120.}}) {
        const sim::StageCosts costs = sim::even_costs({p, 1, m}, {f}, {i}, {w});
        const sim::StageTimes zb = sim::simulate_stages(*pipeline::zb_h1({p, 1, m}), costs);
        const auto made = refill(*pipeline::one_f_one_b({p, 1, m}), costs, p);
        const sim::StageTimes times = sim::simulate_stages(*made, costs);
        EXPECT_LE(times.makespan, zb.makespan) << p << " " << m;
        if (m >= p) {
          EXPECT_EQ(times.makespan, zb.makespan) << p << " " << m;
        }
        EXPECT_LE(times.max_peak(), p);
        ++cases;
      }
  std::cout << cases << " refills of 1f1b against zb-h1\n";
}

// With a barrier at the end of the step, twice the warm-up and its activations (ZB-H2) buy nothing.
TEST(Refill, OfEager1f1bIsNoFasterAtEqualTimes) {
  for (int p = 2; p <= 12; ++p)
    for (const int m : {p, 2 * p, 2 * p + 3, 4 * p}) {
      const sim::StageCosts costs = sim::even_costs({p, 1, m}, {60}, {60}, {60});
      const auto eager = refill(*pipeline::eager_1f1b({p, 1, m}), costs, 2 * p - 1);
      EXPECT_EQ(sim::simulate_stages(*eager, costs).bubble().value, (p - 1) * 60) << p << " " << m;
    }
}

// Half of 1F1B's bubble at equal times; half a tF less where p is odd.
TEST(Refill, OfVHalfHalvesTheBubble) {
  for (int p = 2; p <= 16; ++p)
    for (int m = p / 2 + 1; m <= 2 * p + 5; m += 3) {
      const sim::StageCosts costs = sim::even_costs({p, 2, m}, {60}, {60}, {60});
      const auto half = refill(*pipeline::v_half({p, 2, m}), costs, 2 * ((p + 2) / 2));
      EXPECT_EQ(2 * sim::simulate_stages(*half, costs).bubble().value, (3 * (p - 1) - p % 2) * 60)
          << p << " " << m;
    }
}

std::vector<Pass> without_weights(const Schedule& schedule, int coord) {
  std::vector<Pass> left;
  for (Pass pass : schedule.passes({coord})) {
    if (pass.kind == PassKind::kWeightGrad) continue;
    if (pass.kind == PassKind::kBackward) pass.kind = PassKind::kInputGrad;
    left.push_back(pass);
  }
  return left;
}

program::Program lower_small(const Schedule& schedule) {
  const int stages = schedule.shape().stages();
  program::StepShape step;
  step.stage_begin = program::split_units(stages + 2, stages);
  return lower(schedule, step).value();
}

// Every schedule, uneven stages and costs, caps from too small to plenty.
TEST(Refill, KeepsTheOrderAndTheCapAndNeverLoses) {
  int made_count = 0, refused = 0, faster = 0;
  for (const CatalogRow& row : pipeline::catalog())
    for (const int p : {2, 3, 5})
      for (const int v : {1, 2, 3})
        for (const int m : {2, 7, 12}) {
          const auto plain = row.build({p, v, m});
          if (!plain.ok()) continue;
          sim::StageCosts costs =
              sim::even_costs({p, v, m}, {60}, {84}, {36}, {m % 2 == 0 ? 0.0 : 9.0});
          for (std::size_t s = 0; s < costs.forward.size(); s += 2)
            costs.forward[s] += {12}, costs.weight_grad[s] += {6};
          const sim::StageTimes before = sim::simulate_stages(*plain, costs);
          for (int cap = 0; cap <= before.max_peak() + v * p; ++cap) {
            const auto made = refill(*plain, costs, cap);
            if (!made.ok()) {
              EXPECT_LT(cap, before.max_peak());
              EXPECT_EQ(made.error().code, Code::kOutOfRange);
              ++refused;
              continue;
            }
            ++made_count;
            const sim::StageTimes after = sim::simulate_stages(*made, costs);
            EXPECT_LE(after.max_peak(), cap) << row.name;
            if (before.max_peak() <= cap) {
              EXPECT_LE(after.makespan, before.makespan) << row.name;
              faster += after.makespan < before.makespan;
            }
            const auto program = lower_small(*made);
            EXPECT_TRUE(validate(program, 1).empty()) << row.name;
            EXPECT_TRUE(check_deadlock(program, program::Transport::kTagged).ok()) << row.name;
            for (int r = 0; r < p; ++r)
              ASSERT_EQ(without_weights(*made, r), without_weights(*plain, r));
          }
        }
  std::cout << made_count << " refills, " << faster << " faster, " << refused << " refused\n";
  EXPECT_TRUE(faster > 0 && refused > 0);
}

TEST(Refill, NamesThePassThatDoesNotFit) {
  const auto made =
      refill(*pipeline::gpipe({2, 1, 4}), sim::even_costs({2, 1, 4}, {1}, {1}, {1}), 3);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(
      made.error().message,
      "pass 0F3 of pipeline rank 0 does not fit into 3 stage activations: none of those held can "
      "be freed before");
}

}  // namespace
}  // namespace lockstep::pipeline
