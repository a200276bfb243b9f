#include "lockstep/program/memory_walk.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tests/program/listing.h"
#include "tests/program/lowered.h"

namespace lockstep::program {
namespace {

ProgramBytes random_bytes(Dice& dice, const Program& program) {
  ProgramBytes bytes;
  for (int segment = 0; segment < program.step.num_segments(); ++segment) {
    UnitBytes& u = bytes.units.emplace_back();
    for (std::int64_t UnitBytes::* size :
         {&UnitBytes::act, &UnitBytes::checkpoint, &UnitBytes::stash, &UnitBytes::weight_work,
          &UnitBytes::param, &UnitBytes::param_shard, &UnitBytes::main_grad, &UnitBytes::grad_shard,
          &UnitBytes::optimizer, &UnitBytes::forward, &UnitBytes::recompute, &UnitBytes::backward,
          &UnitBytes::input_grad, &UnitBytes::weight_grad, &UnitBytes::update})
      u.*size = dice.between(1, 1'000'000);
  }
  for (std::size_t i = 0; i < program.lists.size(); ++i) {
    bytes.tokens.push_back(dice.between(1, 1000));
    bytes.constants.push_back(dice.between(1, 1000));
  }
  return bytes;
}

std::int64_t sum_of(const MemoryWalk& walk) {
  return std::accumulate(walk.by_kind.begin(), walk.by_kind.end(), walk.constants + walk.surge);
}

// ZeRO-0, embedding and head, one microbatch, one coordinate, by hand.
TEST(MemoryWalk, FollowsATinyStep) {
  const Program program = tiny(0);
  const UnitBytes embed = {
      .act = 10, .param = 100, .main_grad = 200, .optimizer = 400, .update = 7};
  const UnitBytes head = {.act = 1000,
                          .stash = 10,
                          .param = 150,
                          .main_grad = 300,
                          .optimizer = 600,
                          .first_backward = 5000};
  const MemoryWalk walk = program::walk(program, {0}, {{embed, head}, {3}, {50}});
  EXPECT_EQ(walk.before, 50 + 100 + 400 + 150 + 600);
  const std::int64_t base = walk.before;
  // load count F0 F1 B1 B0 reduce1 reduce0 wait wait norm update0 update1
  const std::vector<std::int64_t> above = {3,   3,   13,  13,  313, 503 - 3, 500,
                                           500, 500, 500, 500, 300, 0};
  ASSERT_EQ(walk.live.size(), above.size());
  for (std::size_t i = 0; i < above.size(); ++i) EXPECT_EQ(walk.live[i], base + above[i]) << i;
  EXPECT_EQ(walk.peak, base + 13 + 5000);
  EXPECT_EQ(walk.peak_op, 4);
  EXPECT_EQ(walk.surge, 5000);
  EXPECT_EQ(walk.by_kind[static_cast<std::size_t>(ValueKind::kStash)], 10);
  EXPECT_EQ(walk.by_kind[static_cast<std::size_t>(ValueKind::kTokens)], 3);
  EXPECT_EQ(sum_of(walk), walk.peak);
}

// Against the set of live values, summed afresh after every op.
TEST(MemoryWalk, AgreesWithTheSetOfLiveValues) {
  Dice dice(2);
  for (const Sample& sample : lowered_samples()) {
    SCOPED_TRACE(sample.name);
    const Program& program = sample.program;
    const ProgramBytes bytes = random_bytes(dice, program);
    for (std::int32_t c = 0; c < program.step.shape.coords; ++c) {
      const MemoryWalk walk = program::walk(program, {c}, bytes);
      const auto kept = persistent(program.step, {c});
      std::set<Value> live(kept.begin(), kept.end());
      const auto total = [&] {
        std::int64_t sum = bytes.constants[static_cast<std::size_t>(c)];
        for (const Value& value : live) sum += value_bytes(program, {c}, bytes, value);
        return sum;
      };
      ASSERT_EQ(walk.before, total());
      std::int64_t peak = total();
      for (std::size_t i = 0; i < program.list({c}).size(); ++i) {
        const Effects fx = effects(program, {c}, program.list({c})[i]);
        for (const Value& value : fx.kills) ASSERT_EQ(live.erase(value), 1u);
        for (const Value& value : fx.defines) ASSERT_TRUE(live.insert(value).second);
        ASSERT_EQ(walk.live[i], total()) << i;
        peak = std::max(peak, total());
      }
      ASSERT_EQ(walk.live.back(), walk.before);
      ASSERT_GE(walk.peak, peak);
      ASSERT_EQ(sum_of(walk), walk.peak);
      const std::int64_t before =
          walk.peak_op <= 0 ? walk.before : walk.live[static_cast<std::size_t>(walk.peak_op - 1)];
      if (walk.surge > 0)
        ASSERT_EQ(walk.peak, before + walk.surge);
      else
        ASSERT_EQ(walk.peak, peak);
    }
  }
}

// A copy at the end of the op that makes the first microbatch's gradient, and of no other.
TEST(MemoryWalk, CountsWhatLookingAtNoiseTakes) {
  Program program = tiny(0);
  Dice dice(3);
  ProgramBytes bytes = random_bytes(dice, program);
  const MemoryWalk without = walk(program, {0}, bytes);
  program.step.tied = false;
  program.step.noise = true;
  bytes.units[0].noise = 1'000'000'000;
  const MemoryWalk with = walk(program, {0}, bytes);
  EXPECT_EQ(with.live, without.live);
  const Op& op = program.list({0})[static_cast<std::size_t>(with.peak_op)];
  EXPECT_TRUE(op.unit == 0 && program.step.is_noise(op));
  EXPECT_EQ(with.peak, with.live[static_cast<std::size_t>(with.peak_op)] + bytes.units[0].noise);
  EXPECT_EQ(sum_of(with), with.peak);
}

TEST(MemoryWalk, RefusesSizesOfAnotherModel) {
  EXPECT_THROW((void)walk(tiny(0), {0}, {{UnitBytes{}}, {0}, {0}}), BrokenInvariant);
  EXPECT_THROW((void)walk(tiny(0), {0}, {{UnitBytes{}, UnitBytes{}}, {}, {0}}), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::program
