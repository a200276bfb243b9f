#include "lockstep/pipeline/generators/generators.h"

#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/deadlock.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/validate.h"
#include "tests/support/fuse.h"
#include "tests/support/golden.h"

namespace lockstep::pipeline {
namespace {

// The fewest chunks above 1 that the schedule takes, if any.
int chunks_of(const CatalogRow& row) { return row.build({2, 2, 4}).ok() ? 2 : 1; }

std::string line(const Schedule& schedule, Coord coord) {
  std::string text;
  for (const Pass& pass : schedule.passes(coord))
    text += (text.empty() ? "" : " ") + to_text(pass).substr(std::to_string(coord.value).size());
  return text;
}

TEST(Generators, FourCoordinatesEightMicrobatches) {
  for (const CatalogRow& row : catalog()) {
    const auto made = row.build({4, chunks_of(row), 8});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->placement(), row.placement) << row.name;
    EXPECT_TRUE(support::matches_golden("schedule/" + std::string(row.name) + "_p4_m8.txt",
                                        to_text(*made)));
  }
  // The figure in the readme of the authors.
  EXPECT_TRUE(
      support::matches_golden("schedule/dualpipe-v_p4_m10.txt", to_text(*dualpipe_v({4, 2, 10}))));
  EXPECT_EQ(line(*zb_h1({4, 1, 8}), {2}),
            "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 F6 I5 W3 F7 I6 W4 I7 W5 W6 W7");
}

TEST(Generators, MeetWhereTheyAreTheSame) {
  int same = 0;
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 13; ++m, ++same) {
      const Shape shape = {p, 1, m};
      EXPECT_EQ(*interleaved(shape), *eager_1f1b(shape));
      EXPECT_EQ(*interleaved_zb(shape), *zb_h1(shape));
      EXPECT_EQ(*looped_bfs(shape), *gpipe(shape));
      if (p == 1) {
        EXPECT_EQ(*one_f_one_b(shape), *eager_1f1b(shape));
      }
      // Groups larger than the microbatches are one group.
      EXPECT_EQ(*interleaved({p, 3, m}, m), *interleaved({p, 3, m}, m + 7));
    }
  EXPECT_EQ(same, 78);
}

// Every schedule, whatever the number of microbatches: fewer than coordinates, and not divisible.
TEST(Generators, TakeEveryShapeTheySay) {
  int taken = 0;
  for (const CatalogRow& row : catalog())
    for (int p = 1; p <= 7; ++p)
      for (int v = 1; v <= 4; ++v)
        for (int m = 1; m <= 17; ++m) {
          const auto made = row.build({p, v, m});
          const bool is_v = row.name == "zbv" || row.name.starts_with("v-");
          bool says = v == 1;
          if (is_v) says = v == 2;
          if (row.name == "dualpipe-v") says = v == 2 && m >= 2 * p;
          if (row.name == "looped-bfs" || row.name == "interleaved-zb") says = true;
          if (row.name == "interleaved") {
            if (m > p && m % p > 0 && v > 1) continue;  // the rule of groups, below
            says = true;
          }
          EXPECT_EQ(made.ok(), says) << row.name << " p" << p << " v" << v << " m" << m;
          if (!made.ok()) {
            EXPECT_EQ(made.error().code, Code::kOutOfRange);
          }
          taken += made.ok();
        }
  std::cout << taken << " shapes taken\n";
}

TEST(Generators, GroupsBelowTheCoordinatesMayWaitInACircle) {
  int sound = 0, rest = 0, rest_refused = 0, small = 0, small_refused = 0;
  for (int p = 2; p <= 6; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = 1; m <= 17; ++m)
        for (int group = 1; group <= m; ++group) {
          const auto made = interleaved({p, v, m}, group);
          const auto zb = interleaved_zb({p, v, m}, group);
          if (group == m || (group >= p && (m % group == 0 || m % group >= p))) {
            ++sound;
            EXPECT_TRUE(made.ok() && zb.ok()) << p << " " << v << " " << m << " " << group;
            continue;
          }
          EXPECT_TRUE(zb.ok() || group < p) << p << " " << v << " " << m << " " << group;
          ++(group < p ? small : rest);
          if (made.ok()) continue;
          ++(group < p ? small_refused : rest_refused);
          EXPECT_EQ(made.error().code, Code::kOutOfRange);
        }
  std::cout << sound << " sound; of " << rest << " with a small last group " << rest_refused
            << " and of " << small << " with small groups " << small_refused << " in a circle\n";
  EXPECT_TRUE(rest_refused > 0 && rest_refused < rest);
  EXPECT_TRUE(small_refused > 0 && small_refused < small);
}

TEST(Generators, RefuseShapesWithTheReason) {
  for (const CatalogRow& row : catalog()) {
    EXPECT_EQ(row.build({2, 2, 0}).error().message, "microbatches = 0 is less than 1") << row.name;
    EXPECT_EQ(row.build({0, 1, 1}).error().code, Code::kOutOfRange);
    EXPECT_EQ(row.build({1 << 12, 2, 1 << 12}).error().code, Code::kOutOfRange);
    if (chunks_of(row) == 1) {
      EXPECT_EQ(row.build({2, 2, 4}).error().message,
                "schedule `" + std::string(row.name) +
                    "` runs one stage per pipeline rank, vpp = 2 asks for more");
    }
  }
  EXPECT_EQ(zbv({2, 1, 4}).error().message,
            "schedule `zbv` runs two stages per pipeline rank, vpp = 1 asks for another number");
  EXPECT_EQ(v_min({2, 3, 4}).error().code, Code::kOutOfRange);
  EXPECT_EQ(
      dualpipe_v({4, 2, 7}).error().message,
      "schedule `dualpipe-v` fills the pipeline from both ends and needs two microbatches per "
      "pipeline rank, microbatches = 7 is less than 8");
  EXPECT_EQ(interleaved({2, 2, 4}, 0).error().message, "group = 0 is less than 1");
  const Error circle = interleaved({4, 3, 5}, 4).error();
  EXPECT_EQ(circle.code, Code::kOutOfRange);
  EXPECT_EQ(circle.message,
            "schedule `interleaved` cannot take 5 microbatches in groups of 4 through 3 virtual "
            "stages on 4 pipeline ranks: the last group has 1, fewer than pipeline ranks, and pass "
            "8F4 of pipeline rank 0 can never run: it waits for 7F4, which pipeline rank 3 has "
            "behind 7B0, which waits for 8B0, which pipeline rank 0 has behind 8F4");
  EXPECT_EQ(circle.help,
            "give every group at least 4 microbatches: 4 or 8 microbatches, or one group of 5");
  EXPECT_TRUE(interleaved({4, 3, 5}, 5).ok() && interleaved({4, 3, 8}, 4).ok());
  EXPECT_EQ(interleaved({4, 2, 6}, 2).error().help,
            "give every group at least 4 microbatches: group = 4 or 6");
}

TEST(Generators, LowerToProgramsThatAreValidAndEnd) {
  int programs = 0;
  for (const CatalogRow& row : catalog())
    for (const int p : {2, 3, 4})
      for (const int m : {1, 3, 8})
        for (const int v : {chunks_of(row), chunks_of(row) + 1}) {
          const auto made = row.build({p, v, m});
          if (!made.ok()) continue;
          for (const bool is_fused : {false, true})
            for (int zero = 0; zero <= 3; ++zero) {
              program::StepShape step;
              step.stage_begin =
                  program::split_units(p * v + 3, p * v);  // one stage has a block more
              step.zero = zero;
              step.period = zero < 2 ? program::Period::kStep : program::Period::kMicrobatch;
              step.resident_units = 1 + m % 2;
              const auto program = program::lower(is_fused ? fuse_backward(*made) : *made, step);
              ASSERT_TRUE(program.ok()) << program.error().message;
              ++programs;
              const auto problems = program::validate(*program);
              const auto ends = program::check_deadlock(*program, program::Transport::kTagged);
              EXPECT_TRUE(problems.empty()) << row.name << ": " << to_text(problems[0]);
              EXPECT_TRUE(ends.ok()) << row.name << ": " << ends.error().message;
            }
        }
  std::cout << programs << " programs\n";
}

// On a device, what a pipeline rank sends to a peer has a communicator of its own, and so has what
// it receives from it (exec/groups.h); NCCL runs each in the order of issue. With one communicator
// for both, receives that are posted early stand in front of sends.
TEST(Generators, EndWithACommunicatorForEachDirectionAndNotWithOneForBoth) {
  int ended = 0, with_one = 0;
  for (const CatalogRow& row : catalog())
    for (const int p : {2, 3, 4, 8, 16})
      for (const int m : {1, 2, 5, 16, 32, 64})
        for (const int units : {1, 2, 4, 8}) {
          const int v = chunks_of(row);
          const auto made = row.build({p, v, m});
          if (!made.ok()) continue;
          program::StepShape step;
          step.stage_begin = program::split_units(p * v * units, p * v);
          const auto program = program::lower(*made, step);
          ASSERT_TRUE(program.ok()) << program.error().message;
          const auto ends =
              program::check_deadlock(*program, program::Transport::kFifoPerDirection);
          EXPECT_TRUE(ends.ok()) << row.name << ": " << ends.error().message;
          ++ended;
          if (m > 1) {
            ++with_one;
            EXPECT_FALSE(check_deadlock(*program, program::Transport::kQueuePerPeer).ok())
                << row.name << " p " << p << " m " << m << " units " << units;
          }
        }
  std::cout << ended << " programs end; " << with_one << " do not with one communicator\n";
}

TEST(Fuse, JoinsNeighboursAlone) {
  const auto split = Schedule::create({1, 1, 3}, Placement::kLoop,
                                      {{{PassKind::kForward, {0}, {0}},
                                        {PassKind::kForward, {0}, {1}},
                                        {PassKind::kForward, {0}, {2}},
                                        {PassKind::kInputGrad, {0}, {0}},
                                        {PassKind::kWeightGrad, {0}, {0}},
                                        {PassKind::kInputGrad, {0}, {1}},
                                        {PassKind::kInputGrad, {0}, {2}},
                                        {PassKind::kWeightGrad, {0}, {1}},
                                        {PassKind::kWeightGrad, {0}, {2}}}});
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(to_text(fuse_backward(*split)), "0F0,0F1,0F2,0B0,0I1,0I2,0W1,0W2\n");
  for (const CatalogRow& row : catalog()) {
    const Schedule plain = *row.build({4, chunks_of(row), 8}), fused = fuse_backward(plain);
    EXPECT_EQ(fuse_backward(fused), fused);
    for (int coord = 0; coord < 4; ++coord)
      for (std::size_t i = 1; i < fused.passes({coord}).size(); ++i) {
        const Pass &before = fused.passes({coord})[i - 1], &pass = fused.passes({coord})[i];
        EXPECT_FALSE(before.kind == PassKind::kInputGrad && pass.kind == PassKind::kWeightGrad &&
                     before.stage == pass.stage && before.microbatch == pass.microbatch);
      }
  }
}

TEST(Catalog, FindsByNameAndListsNames) {
  std::string names;
  for (const CatalogRow& row : catalog()) {
    const auto found = find(row.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->build, row.build);
    for (const std::string_view text : {row.summary, row.accepts, row.bubble, row.peak})
      EXPECT_TRUE(!text.empty() && text.find('\n') == text.npos);
    if (row.build_grouped != nullptr) {
      EXPECT_EQ(*row.build_grouped({3, 2, 6}, 3), *row.build({3, 2, 6})) << row.name;
    }
    names += (names.empty() ? "`" : ", `") + std::string(row.name) + "`";
  }
  EXPECT_EQ(*find("1f1b")->build({3, 1, 5}), *one_f_one_b({3, 1, 5}));
  const auto missing = find("1F1B");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kUnknownChoice);
  EXPECT_EQ(missing.error().message, "there is no schedule `1F1B`");
  EXPECT_EQ(missing.error().help, "schedules are " + names);
}

}  // namespace
}  // namespace lockstep::pipeline
