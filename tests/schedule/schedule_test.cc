#include "lockstep/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/schedule/generators/generators.h"
#include "tests/support/golden.h"

namespace lockstep::schedule {
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
  ASSERT_TRUE(made.ok()) << to_text(made.error());
  EXPECT_EQ(to_text(*made), "0F0,0F1,0B0,0I1,0W1\n1F1,1F0,1I0,1W0,1B1\n");
  EXPECT_EQ(made->placement(), Placement::kV);
  EXPECT_TRUE(std::ranges::equal(made->passes({1}), legal[1]));
  EXPECT_THROW((void)made->passes({2}), BrokenInvariant);
}

TEST(Schedule, RefusesAndNamesThePass) {
  const Shape one = {1, 1, 1}, two = {2, 1, 1}, twice = {1, 1, 2};
  EXPECT_EQ(refusal(one, {{f(0, 0), b(0, 0)}}), "");
  EXPECT_EQ(refusal(one, {{f(0, 0), i(0, 0), w(0, 0)}}), "");
  EXPECT_EQ(refusal(two, {{f(0, 0), b(0, 0)}}), "there are 1 lists of passes for 2 coordinates");
  EXPECT_EQ(refusal(one, {{f(0, 0), b(0, 0), f(1, 0)}}),
            "pass 1F0 of coordinate 0 is outside 1 stages and 1 microbatches");
  EXPECT_EQ(refusal(one, {{f(0, -1), b(0, 0)}}),
            "pass 0F-1 of coordinate 0 is outside 1 stages and 1 microbatches");
  EXPECT_EQ(refusal(two, {{f(0, 0), b(0, 0), f(1, 0)}, {b(1, 0)}}),
            "pass 1F0 of coordinate 0 belongs to coordinate 1");
  EXPECT_EQ(refusal(one, {{f(0, 0), f(0, 0), b(0, 0)}}), "pass 0F0 of coordinate 0 is there twice");
  EXPECT_EQ(refusal(one, {{f(0, 0), b(0, 0), w(0, 0)}}),
            "pass 0W0 of coordinate 0 makes a second backward pass");
  EXPECT_EQ(refusal(one, {{f(0, 0), i(0, 0), b(0, 0)}}),
            "pass 0B0 of coordinate 0 makes a second backward pass");
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
  EXPECT_EQ(refusal({1, 1, 1}, {{b(0, 0), f(0, 0)}}),
            "pass 0B0 of coordinate 0 can never run: it waits for 0F0");
  EXPECT_EQ(refusal({1, 1, 1}, {{f(0, 0), w(0, 0), i(0, 0)}}),
            "pass 0W0 of coordinate 0 can never run: it waits for 0I0");
  EXPECT_EQ(refusal({1, 2, 1}, {{f(0, 0), f(1, 0), b(0, 0), b(1, 0)}}),
            "pass 0B0 of coordinate 0 can never run: it waits for 1B0");
  // A circle through both coordinates.
  EXPECT_EQ(refusal({2, 1, 2},
                    {{f(0, 0), b(0, 0), f(0, 1), b(0, 1)}, {f(1, 0), f(1, 1), b(1, 0), b(1, 1)}}),
            "pass 0B0 of coordinate 0 can never run: it waits for 1B0");
  // The same stages on other coordinates: with V the last stage is on coordinate 0.
  const Timetable v = {{f(0, 0), f(3, 0), b(3, 0), b(0, 0)}, {f(1, 0), f(2, 0), b(2, 0), b(1, 0)}};
  EXPECT_EQ(refusal({2, 2, 1}, v, Placement::kV), "");
  EXPECT_EQ(refusal({2, 2, 1}, v), "pass 3F0 of coordinate 0 belongs to coordinate 1");
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

TEST(Generators, FourCoordinatesEightMicrobatches) {
  for (const CatalogRow& row : catalog()) {
    const auto made = row.build({4, 1, 8});
    ASSERT_TRUE(made.ok());
    EXPECT_TRUE(support::matches_golden("schedule/" + std::string(row.name) + "_p4_m8.txt",
                                        to_text(*made)));
  }
}

// Most microbatches forward but not yet backward on one coordinate.
int most_in_flight(const Schedule& schedule, Coord coord) {
  int now = 0, most = 0;
  for (const Pass& pass : schedule.passes(coord)) {
    now += pass.kind == PassKind::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

// When the last coordinate is done if F takes 1, B takes 2, and communication none.
int makespan(const Schedule& schedule) {
  const Shape& shape = schedule.shape();
  const auto cell = [&](int stage, int mb) {
    return static_cast<std::size_t>(stage * shape.microbatches + mb);
  };
  std::vector<int> forward(static_cast<std::size_t>(shape.stages() * shape.microbatches), -1);
  std::vector<int> backward = forward, clock(static_cast<std::size_t>(shape.coords));
  std::vector<std::size_t> next(static_cast<std::size_t>(shape.coords));
  for (bool moved = true; moved;) {
    moved = false;
    for (int c = 0; c < shape.coords; ++c) {
      const auto at = static_cast<std::size_t>(c);
      if (next[at] == schedule.passes({c}).size()) continue;
      const Pass& pass = schedule.passes({c})[next[at]];
      const int s = pass.stage.value, mb = pass.microbatch.value;
      const bool is_forward = pass.kind == PassKind::kForward;
      int ready = 0;
      if (is_forward && s > 0) ready = forward[cell(s - 1, mb)];
      if (!is_forward && s + 1 < shape.stages()) ready = backward[cell(s + 1, mb)];
      if (ready < 0) continue;
      clock[at] = std::max(clock[at], ready) + (is_forward ? 1 : 2);
      (is_forward ? forward : backward)[cell(s, mb)] = clock[at];
      ++next[at];
      moved = true;
    }
  }
  return std::ranges::max(clock);
}

TEST(Generators, InFlightAndBubbleAreTheClosedForms) {
  for (int p = 1; p <= 9; ++p)
    for (int m = 1; m <= 20; ++m) {
      const auto all = gpipe({p, 1, m}), alternating = one_f_one_b({p, 1, m});
      ASSERT_TRUE(all.ok() && alternating.ok()) << p << " " << m;
      for (int r = 0; r < p; ++r) {
        EXPECT_EQ(most_in_flight(*all, {r}), m);
        EXPECT_EQ(most_in_flight(*alternating, {r}), std::min(m, p - r));
      }
      EXPECT_EQ(makespan(*all), 3 * m + 3 * (p - 1));
      EXPECT_EQ(makespan(*alternating), 3 * m + 3 * (p - 1));
    }
}

TEST(Generators, RefuseShapesWithTheReason) {
  for (const CatalogRow& row : catalog()) {
    const auto chunks = row.build({2, 2, 4});
    ASSERT_FALSE(chunks.ok());
    EXPECT_EQ(chunks.error().code, Code::kOutOfRange);
    EXPECT_EQ(chunks.error().message, "schedule `" + std::string(row.name) +
                                          "` runs one stage per coordinate, chunks = 2 asks for "
                                          "more");
    EXPECT_EQ(row.build({2, 1, 0}).error().message, "microbatches = 0 is less than 1");
    EXPECT_EQ(row.build({0, 1, 1}).error().code, Code::kOutOfRange);
  }
}

TEST(Catalog, FindsByNameAndListsNames) {
  for (const CatalogRow& row : catalog()) {
    const auto found = find(row.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->build, row.build);
    for (const std::string_view text : {row.summary, row.accepts, row.bubble, row.peak})
      EXPECT_TRUE(!text.empty() && text.find('\n') == text.npos);
  }
  EXPECT_EQ(*find("1f1b")->build({3, 1, 5}), *one_f_one_b({3, 1, 5}));
  const auto missing = find("1F1B");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kUnknownChoice);
  EXPECT_EQ(missing.error().message, "there is no schedule `1F1B`");
  EXPECT_EQ(missing.error().help, "schedules are `gpipe`, `1f1b`");
}

}  // namespace
}  // namespace lockstep::schedule
