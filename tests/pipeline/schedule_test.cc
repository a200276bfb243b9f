#include "lockstep/pipeline/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {
namespace {

using Timetable = std::vector<std::vector<Pass>>;

Pass f(int stage, int mb) { return {PassKind::kForward, {stage}, {mb}}; }
Pass b(int stage, int mb) { return {PassKind::kBackward, {stage}, {mb}}; }
Pass i(int stage, int mb) { return {PassKind::kInputGrad, {stage}, {mb}}; }
Pass w(int stage, int mb) { return {PassKind::kWeightGrad, {stage}, {mb}}; }

// The refusal's message; empty when the timetable is accepted.
std::string refusal(Shape shape, Timetable timetable, Placement placement = Placement::kLoop) {
  const auto made = Schedule::create(shape, placement, std::move(timetable));
  if (made.ok()) return "";
  EXPECT_EQ(made.error().code, Code::kBadSchedule);
  return made.error().message;
}

TEST(Schedule, KeepsWhatItWasGiven) {
  const Timetable timetable = {{f(0, 0), f(0, 1), b(0, 0), i(0, 1), w(0, 1)},
                               {f(1, 1), f(1, 0), i(1, 0), b(1, 1), w(1, 0)}};
  // Weight gradients would be added in the order 1, 0.
  EXPECT_EQ(refusal({2, 1, 2}, timetable), "pass 1B1 is out of microbatch order");
  Timetable legal = timetable;
  std::swap(legal[1][3], legal[1][4]);
  const auto made = Schedule::create({2, 1, 2}, Placement::kV, legal);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(to_text(*made), "0F0,0F1,0B0,0I1,0W1\n1F1,1F0,1I0,1W0,1B1\n");
  EXPECT_EQ(made->placement(), Placement::kV);
  EXPECT_TRUE(std::ranges::equal(made->passes({1}), legal[1]));
  EXPECT_THROW((void)made->passes({2}), BrokenInvariant);
}

TEST(Schedule, RefusesAndNamesThePass) {
  const Shape one = {1, 1, 1}, two = {2, 1, 1}, twice = {1, 1, 2};
  EXPECT_EQ(refusal(one, {{f(0, 0), b(0, 0)}}), "");
  EXPECT_EQ(refusal(one, {{f(0, 0), i(0, 0), w(0, 0)}}), "");
  EXPECT_EQ(refusal(two, {{f(0, 0), b(0, 0)}}), "there are 1 lists of passes for 2 pipeline ranks");
  EXPECT_EQ(refusal(one, {{f(0, 0), b(0, 0), f(1, 0)}}),
            "pass 1F0 of pipeline rank 0 is outside 1 stages and 1 microbatches");
  EXPECT_EQ(refusal(one, {{f(0, -1), b(0, 0)}}),
            "pass 0F-1 of pipeline rank 0 is outside 1 stages and 1 microbatches");
  EXPECT_EQ(refusal(two, {{f(0, 0), b(0, 0), f(1, 0)}, {b(1, 0)}}),
            "pass 1F0 of pipeline rank 0 belongs to pipeline rank 1");
  EXPECT_EQ(refusal(one, {{f(0, 0), f(0, 0), b(0, 0)}}),
            "pass 0F0 of pipeline rank 0 is there twice");
  EXPECT_EQ(refusal(one, {{f(0, 0), b(0, 0), w(0, 0)}}),
            "pass 0W0 of pipeline rank 0 makes a second backward pass");
  EXPECT_EQ(refusal(one, {{f(0, 0), i(0, 0), b(0, 0)}}),
            "pass 0B0 of pipeline rank 0 makes a second backward pass");
  EXPECT_EQ(refusal(one, {{b(0, 0)}}), "pass 0F0 is missing");
  EXPECT_EQ(refusal(one, {{f(0, 0)}}), "pass 0B0 is missing");
  EXPECT_EQ(refusal(one, {{f(0, 0), i(0, 0)}}), "pass 0W0 is missing");
  EXPECT_EQ(refusal(one, {{f(0, 0), w(0, 0)}}), "pass 0I0 is missing");
  EXPECT_EQ(refusal(twice, {{f(0, 0), f(0, 1), b(0, 1), b(0, 0)}}),
            "pass 0B1 is out of microbatch order");
  EXPECT_EQ(refusal(twice, {{f(0, 0), f(0, 1), i(0, 1), i(0, 0), w(0, 0), w(0, 1)}}),
            "pass 0I1 is out of microbatch order");
  EXPECT_EQ(refusal(twice, {{f(0, 0), f(0, 1), i(0, 0), i(0, 1), w(0, 1), w(0, 0)}}),
            "pass 0W1 is out of microbatch order");
}

TEST(Schedule, RefusesWhatCanNeverBecomeReady) {
  EXPECT_EQ(
      refusal({1, 1, 1}, {{b(0, 0), f(0, 0)}}),
      "pass 0B0 of pipeline rank 0 can never run: it waits for 0F0, which pipeline rank 0 has "
      "behind 0B0");
  EXPECT_EQ(
      refusal({1, 1, 1}, {{f(0, 0), w(0, 0), i(0, 0)}}),
      "pass 0W0 of pipeline rank 0 can never run: it waits for 0I0, which pipeline rank 0 has "
      "behind 0W0");
  EXPECT_EQ(
      refusal({1, 2, 1}, {{f(0, 0), f(1, 0), b(0, 0), b(1, 0)}}),
      "pass 0B0 of pipeline rank 0 can never run: it waits for 1B0, which pipeline rank 0 has "
      "behind 0B0");
  // A circle through both coordinates.
  EXPECT_EQ(
      refusal({2, 1, 2},
              {{f(0, 0), b(0, 0), f(0, 1), b(0, 1)}, {f(1, 0), f(1, 1), b(1, 0), b(1, 1)}}),
      "pass 0B0 of pipeline rank 0 can never run: it waits for 1B0, which pipeline rank 1 has "
      "behind 1F1, which waits for 0F1, which pipeline rank 0 has behind 0B0");
  // Coordinate 0 waits for a circle and is no part of it.
  EXPECT_EQ(
      refusal({3, 1, 2}, {{f(0, 0), b(0, 0), f(0, 1), b(0, 1)},
                          {f(1, 0), b(1, 0), f(1, 1), b(1, 1)},
                          {f(2, 0), f(2, 1), b(2, 0), b(2, 1)}}),
      "pass 1B0 of pipeline rank 1 can never run: it waits for 2B0, which pipeline rank 2 has "
      "behind 2F1, which waits for 1F1, which pipeline rank 1 has behind 1B0");
  // The same stages on other coordinates: with V the last stage is on coordinate 0.
  const Timetable v = {{f(0, 0), f(3, 0), b(3, 0), b(0, 0)}, {f(1, 0), f(2, 0), b(2, 0), b(1, 0)}};
  EXPECT_EQ(refusal({2, 2, 1}, v, Placement::kV), "");
  EXPECT_EQ(refusal({2, 2, 1}, v), "pass 3F0 of pipeline rank 0 belongs to pipeline rank 1");
}

TEST(Schedule, RefusesUnusableShapes) {
  for (const Shape shape :
       {Shape{0, 1, 1}, Shape{1, 0, 1}, Shape{1, 1, 0}, Shape{-3, 1, 1}, Shape{1 << 12, 1 << 12, 2},
        Shape{2147483647, 2147483647, 2147483647}}) {
    const auto made = Schedule::create(shape, Placement::kLoop, {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::kOutOfRange) << made.error().message;
  }
  EXPECT_TRUE(check_shape({1 << 12, 1 << 11, 2}).ok());
}

}  // namespace
}  // namespace lockstep::pipeline
