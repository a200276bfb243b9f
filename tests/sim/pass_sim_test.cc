#include "lockstep/sim/pass_sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "lockstep/model/arch.h"
#include "lockstep/model/catalog.h"
#include "lockstep/parts/unit_passes.h"

namespace lockstep::sim {
namespace {

using parts::UnitPass;
using parts::UnitPasses;

constexpr UnitPass kPasses[] = {UnitPass::kForward, UnitPass::kBackward, UnitPass::kFirstBackward,
                                UnitPass::kInputGrad, UnitPass::kWeightGrad};

UnitPasses block(int tp, bool sp, bool overlap) {
  const model::ModelConfig config = model::find("llama-tiny")->config;
  return {config,
          model::Unit{},
          {.batch = 2, .seq = 8, .tp = tp, .sequence_parallel = sp, .tp_overlap = overlap}};
}

// Whole numbers, so that sums are exact in any order.
std::vector<PartCost> random_costs(std::mt19937& random, const parts::Pass& pass,
                                   const parts::Sizes& sizes) {
  std::uniform_int_distribution<int> any(0, 20);
  std::vector<PartCost> costs;
  parts::Sizes now = sizes;
  for_each_part(
      pass, now,
      [&](std::size_t i, std::int64_t) {
        if (pass.parts[i].kind == parts::Kind::kWait) return;
        const bool moves = row_of(pass.parts[i].kind).collective;
        costs.push_back({{double(any(random))}, {moves ? double(any(random)) : 0.0}});
      },
      [] {});
  return costs;
}

// When each part of a list may begin is written down from its definition: behind the part in front;
// a wait until its collective's end; a collective behind its issue and the collective before.
Seconds by_hand(const parts::Pass& pass, const std::vector<PartCost>& costs) {
  Seconds now, lane;
  std::map<parts::ValueId, Seconds> done;
  auto cost = costs.begin();
  for (const parts::Part& part : pass.parts) {
    if (part.kind == parts::Kind::kWait) {
      now = std::max(now, done.at(part.in[0]));
      continue;
    }
    now += cost->list;
    if (row_of(part.kind).collective) done[part.out[0]] = lane = std::max(lane, now) + cost->lane;
    ++cost;
  }
  return now;
}

TEST(PassSim, IsWhatTheRulesSay) {
  std::mt19937 random(7);
  for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}})
    for (const bool overlap : {false, true}) {
      const UnitPasses unit = block(tp, sp, overlap);
      for (const UnitPass name : kPasses)
        for (int i = 0; i < 50; ++i) {
          const parts::Pass& pass = unit.at(name);
          const std::vector<PartCost> costs = random_costs(random, pass, unit.sizes());
          const PassTimes times = simulate_pass(pass, unit.sizes(), costs);
          EXPECT_EQ(times.length, by_hand(pass, costs));
          Seconds alone;
          for (const PartCost& cost : costs) alone += cost.list + cost.lane;
          if (!overlap) {
            EXPECT_EQ(times.length, alone);
          }
          const auto beside = std::ranges::count(times.parts, true, &program::TimedPart::is_beside);
          EXPECT_EQ(times.parts.size() - beside, pass.parts.size());
          EXPECT_LE(times.length, alone);
        }
    }
}

// So much slower that nothing is gained, and everything between.
TEST(PassSim, SlowdownTakesTheGainBack) {
  std::mt19937 random(8);
  const UnitPasses unit = block(2, true, true);
  const parts::Pass& pass = unit.at(UnitPass::kBackward);
  for (int i = 0; i < 50; ++i) {
    const std::vector<PartCost> costs = random_costs(random, pass, unit.sizes());
    Seconds alone, before;
    for (const PartCost& cost : costs) alone += cost.list + cost.lane;
    for (const double factor : {1.0, 1.25, 1.5, 2.0}) {
      const Seconds now = simulate_pass(pass, unit.sizes(), costs, {factor, factor}).length;
      EXPECT_GE(now.value, before.value - 1e-9);
      EXPECT_LE(now.value, alone.value + 1e-9);
      before = now;
    }
    EXPECT_NEAR(before.value, alone.value, 1e-9);
  }
}

// The gradient of a weight runs beside the sum of the input's gradient, and the rows that it
// gathers for itself beside the product in front.
TEST(PassSim, GradientsOfWeightsRunBesideCollectives) {
  for (const bool sp : {false, true}) {
    const UnitPasses unit = block(2, sp, true);
    const parts::Pass& pass = unit.at(UnitPass::kBackward);
    std::vector<PartCost> costs;
    for (const parts::Part& part : pass.parts)
      if (part.kind != parts::Kind::kWait)
        costs.push_back({{row_of(part.kind).collective ? 0.0 : 1.0},
                         {row_of(part.kind).collective ? 1.0 : 0.0}});
    Seconds alone;
    for (const PartCost& cost : costs) alone += cost.list + cost.lane;
    // Two sums under gradients of weights; with sp also two gathers under products.
    EXPECT_EQ(simulate_pass(pass, unit.sizes(), costs).length, alone - Seconds{sp ? 4.0 : 2.0});
  }
}

}  // namespace
}  // namespace lockstep::sim
