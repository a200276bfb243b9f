#include "lockstep/launch/stillness.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

// A rank that pulses every 50 ms, seen every 50 ms, on a clock of the test.
class StillnessTest : public testing::Test {
 protected:
  using Wrong = std::optional<std::string>;

  Wrong look(launch::Run run = launch::Run::kRuns, double late = 0) {
    return stillness_.look(sight_, run, at(now_), Seconds{late});
  }
  // For so long, or until something is wrong; `pulses`: it shows signs of life.
  Wrong stay(double seconds, launch::Run run = launch::Run::kRuns, bool pulses = true) {
    for (const double end = now_ + seconds; now_ < end;) {
      now_ += 0.05;
      if (pulses) sight_.pulse = at(now_);
      if (const Wrong wrong = look(run)) return wrong;
    }
    return std::nullopt;
  }
  Wrong stand(std::int32_t step, std::int32_t op, double seconds, bool waits = false) {
    sight_.position = comm::Position{step, op, waits};
    return stay(seconds);
  }
  static SteadyPoint at(double seconds) {
    return SteadyPoint(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
  }

  Stillness stillness_;
  Sight sight_ = {.holds = true, .leaves = false, .pulse = {}, .late = {}};
  double now_ = 100;
};

TEST_F(StillnessTest, AStoppedProcessIsFoundAfterTwoSecondsAndATracedOneNever) {
  EXPECT_FALSE(stay(1.9, launch::Run::kStopped, false));
  EXPECT_FALSE(stay(1));  // goes on: nothing is held against it
  EXPECT_FALSE(stay(1.9, launch::Run::kStopped, false));
  EXPECT_EQ(stay(0.3, launch::Run::kStopped, false), "was stopped for 2.0 s");
  EXPECT_FALSE(Stillness().look(sight_, launch::Run::kTraced, at(now_), {}));
  stillness_ = {};
  EXPECT_FALSE(stay(600, launch::Run::kTraced, false));
}

TEST_F(StillnessTest, AProcessWithoutASignOfLifeIsFoundUnlessItWasSlowBefore) {
  ASSERT_FALSE(stay(1));
  EXPECT_FALSE(stay(1.9, launch::Run::kRuns, false));
  EXPECT_EQ(stay(0.3, launch::Run::kRuns, false), "showed no sign of life for 2.0 s");
  stillness_ = {};
  ASSERT_FALSE(stay(1));
  ASSERT_FALSE(stay(1, launch::Run::kRuns, false));
  ASSERT_FALSE(stay(1));
  EXPECT_FALSE(stay(4.9, launch::Run::kRuns, false));  // five times one second
  EXPECT_TRUE(stay(0.6, launch::Run::kRuns, false));
}

TEST_F(StillnessTest, OneThatHasNotBegunIsNotJudged) {
  sight_.holds = false;
  EXPECT_FALSE(stay(600, launch::Run::kRuns, false));
}

TEST_F(StillnessTest, OneThatStandsInAStepIsFoundByWhatItTookBefore) {
  ASSERT_FALSE(stand(7, 3, 30));  // all is new in the first step that is seen
  ASSERT_FALSE(stand(7, comm::PositionCell::kBetween, 0.1));
  stillness_ = {};
  ASSERT_FALSE(stand(7, 3, 0.3));
  EXPECT_FALSE(stillness_.has_stepped());
  ASSERT_FALSE(stand(8, 3, 0.2));
  EXPECT_TRUE(stillness_.has_stepped());
  ASSERT_FALSE(stand(8, 4, 1.9));
  ASSERT_FALSE(stand(8, 5, 0.1));
  EXPECT_FALSE(stand(8, 6, 9));  // five times 1.9
  ASSERT_FALSE(stand(8, 7, 0.1));
  stillness_ = {};
  ASSERT_FALSE(stand(7, 3, 0.3));
  EXPECT_EQ(stand(8, 3, 5), "stood still for 2.0 s, at most 0.3 s before");
}

TEST_F(StillnessTest, WhoWaitsForOthersOrIsBetweenStepsMayStayThere) {
  ASSERT_FALSE(stand(7, 3, 0.1));
  EXPECT_FALSE(stand(8, 3, 100, true));
  EXPECT_FALSE(stand(8, comm::PositionCell::kBetween, 100));
  sight_.position = comm::Position{8, 3, false, true};  // in an evaluation
  EXPECT_FALSE(stay(100));
}

// Ten looks of 0.4 s each, where 0.05 s were planned.
TEST_F(StillnessTest, WhatTheLauncherOrTheRankWasLateIsNotHeldAgainstIt) {
  for (const bool launcher : {true, false}) {
    stillness_ = {};
    ASSERT_FALSE(stand(7, 3, 0.1));
    ASSERT_FALSE(stand(8, 3, 0.1));
    for (int i = 0; i < 10; ++i) {
      now_ += 0.4;
      sight_.pulse = at(now_);
      if (!launcher) sight_.late.value += 0.35;
      EXPECT_FALSE(look(launch::Run::kRuns, launcher ? 0.35 : 0));
    }
    EXPECT_TRUE(stay(2.2));
  }
  stillness_ = {};
  ASSERT_FALSE(look(launch::Run::kStopped));
  for (int i = 0; i < 10; ++i) {
    now_ += 0.4;
    EXPECT_FALSE(look(launch::Run::kStopped, 0.35));
  }
}

std::vector<bool> of(std::initializer_list<bool> busy) { return busy; }

TEST(Slowness, NamesOnceWhoComputesLongerThanTheMedian) {
  Slowness slowness(4);
  int told = 0;
  for (int i = 0; i < 6 * Slowness::kLooks; ++i) {
    const bool half = i % 2 == 0;
    if (const auto slow = slowness.look(of({half, true, half, half}))) {
      ++told;
      EXPECT_EQ(slow->rank, 1);
      EXPECT_DOUBLE_EQ(slow->ratio, 2);
      EXPECT_EQ(i + 1, Slowness::kRounds * Slowness::kLooks);
    }
  }
  EXPECT_EQ(told, 1);
}

TEST(Slowness, NamesNobodyAmongEqualsOfTwoOrAmongIdleOnes) {
  Slowness equal(4), two(2), idle(4);
  for (int i = 0; i < 6 * Slowness::kLooks; ++i) {
    EXPECT_FALSE(equal.look(of({true, true, true, true})));
    EXPECT_FALSE(two.look(of({true, i % 9 == 0})));
    EXPECT_FALSE(idle.look(of({i % 5 == 0, i % 50 == 0, i % 50 == 0, i % 50 == 0})));
  }
}

}  // namespace
}  // namespace lockstep::launch
