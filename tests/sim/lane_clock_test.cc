#include "lockstep/sim/lane_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::sim {
namespace {

TEST(LaneClock, WorkEndsInTheOrderOfTimeThenOfLanes) {
  LaneClock clock(4);
  const double lengths[] = {3, 2, 3, 2};
  for (int lane = 0; lane < 4; ++lane) {
    clock.begin(lane, {lengths[lane]});
    clock.set_factor(lane, 1);
  }
  std::vector<int> order;
  while (clock.advance())
    while (const auto lane = clock.take_ended()) {
      order.push_back(*lane);
      EXPECT_EQ(clock.now().value, lengths[*lane]);
      EXPECT_EQ(clock.start_of(*lane).value, 0);
      EXPECT_FALSE(clock.is_busy(*lane));
    }
  EXPECT_EQ(order, (std::vector<int>{1, 3, 0, 2}));
}

TEST(LaneClock, AFactorCountsFromWhereItIsSet) {
  LaneClock clock(2);
  clock.begin(0, {8});
  clock.begin(1, {4});
  clock.set_factor(0, 1);
  clock.set_factor(1, 1);
  ASSERT_TRUE(clock.advance());
  EXPECT_EQ(clock.take_ended(), 1);
  clock.set_factor(0, 2);  // half is left
  clock.hold(1, {6});
  clock.set_factor(1, 3);  // keeps its time
  ASSERT_TRUE(clock.advance());
  EXPECT_EQ(clock.now().value, 6);
  EXPECT_EQ(clock.take_ended(), 1);
  EXPECT_FALSE(clock.take_ended());
  clock.set_factor(0, 1);  // 3 left
  ASSERT_TRUE(clock.advance());
  EXPECT_EQ(clock.now().value, 9);
  EXPECT_EQ(clock.take_ended(), 0);
  EXPECT_FALSE(clock.advance());
  clock.set_factor(0, 5);  // an idle lane has no work to slow
  EXPECT_FALSE(clock.advance());
}

TEST(LaneClock, RefusesASecondWorkAndNegativeWork) {
  LaneClock clock(1);
  EXPECT_THROW(clock.begin(0, {-1}), BrokenInvariant);
  clock.begin(0, {1});
  EXPECT_THROW(clock.begin(0, {1}), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep::sim
