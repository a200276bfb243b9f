#include "lockstep/program/lower.h"

#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/generators/generators.h"
#include "tests/program/program_text.h"
#include "tests/program/replay.h"
#include "tests/support/golden.h"

namespace lockstep::program {
namespace {

Program lowered(const Result<pipeline::Schedule>& schedule, const StepShape& step) {
  auto program = lower(*schedule, step);
  EXPECT_TRUE(program.ok()) << program.error().message;
  return *std::move(program);
}

std::string to_lines(const Program& program) {
  std::string text;
  for (std::size_t coord = 0; coord < program.lists.size(); ++coord)
    text += "# pipeline rank " + std::to_string(coord) + "\n" + to_lines(program.lists[coord]);
  return text;
}

// Embedding, one block, head; two microbatches; one coordinate.
TEST(Lower, TheFourZeroStages) {
  const Period by_zero[] = {Period::kStep, Period::kStep, Period::kMicrobatch, Period::kMicrobatch};
  std::string text;
  for (int zero = 0; zero < 4; ++zero) {
    const StepShape step = {.zero = zero, .period = by_zero[zero]};
    text += "## ZeRO-" + std::to_string(zero) + "\n";
    text += to_lines(lowered(pipeline::one_f_one_b({1, 1, 2}), step));
  }
  EXPECT_TRUE(support::matches_golden("schedule/zero_stages.txt", text));
}

// Norm gains of the block and of the head are partial over the tensor group.
TEST(Lower, PartialGradientsAreSummedOncePerStep) {
  std::string text;
  for (const int zero : {0, 3}) {
    const StepShape step = {.zero = zero,
                            .period = zero == 0 ? Period::kStep : Period::kMicrobatch,
                            .replicas = true,
                            .tied = true,
                            .tensor_parallel = true,
                            .partial = {false, true, true}};
    const Program program = lowered(pipeline::one_f_one_b({1, 1, 2}), step);
    text += "## ZeRO-" + std::to_string(zero) + "\n" + to_lines(program) + to_text(program);
  }
  EXPECT_TRUE(support::matches_golden("schedule/partial_gradients.txt", text));
}

// docs/life-of-a-step.md shows this program; LOCKSTEP_UPDATE_GOLDEN=1 writes it there.
TEST(Lower, TheStepOfThePage) {
  const StepShape step = {.stage_begin = {0, 2, 4}, .zero = 3, .period = Period::kMicrobatch};
  const Program program = lowered(pipeline::one_f_one_b({2, 1, 2}), step);
  std::ifstream file(support::source_dir() + "/docs/life-of-a-step.md");
  std::stringstream read;
  read << file.rdbuf();
  std::string page = read.str();
  for (std::size_t coord = 0; coord < program.lists.size(); ++coord) {
    const std::string mark = join_parts("<!-- pipeline rank ", coord, " -->\n```\n");
    ASSERT_NE(page.find(mark), std::string::npos) << mark;
    const std::size_t begin = page.find(mark) + mark.size();
    page.replace(begin, page.find("```", begin) - begin, to_lines(program.lists[coord]));
  }
  EXPECT_TRUE(support::matches_golden("../../docs/life-of-a-step.md", page));
}

TEST(Lower, EverythingAtOnce) {
  const StepShape step = {.stage_begin = {0, 2, 4},
                          .zero = 3,
                          .period = Period::kMicrobatch,
                          .replicas = true,
                          .tied = true,
                          .recompute = {false, true, true, false},
                          .resident_units = 1,
                          .prefetch = 2};
  EXPECT_TRUE(support::matches_golden("schedule/pipeline_zero3.txt",
                                      to_lines(lowered(pipeline::one_f_one_b({2, 1, 2}), step))));
}

TEST(Lower, SplitBackwardLeavesTheHeadWhole) {
  const pipeline::Pass f0 = {pipeline::PassKind::kForward}, i0 = {pipeline::PassKind::kInputGrad},
                       w0 = {pipeline::PassKind::kWeightGrad};
  const auto schedule = pipeline::Schedule::create({}, pipeline::Placement::kLoop, {{f0, i0, w0}});
  EXPECT_EQ(to_lines(lowered(schedule, {.recompute = {false, true, false}})),
            "# pipeline rank 0\n"
            "Load0 Count 0F0\n1F0\n2F0\n2B0\n"
            "Reduce2,0 1R0\n1I0\n0I0\n1W0\n"
            "Wait:Reduce2,0 Reduce1,0 0W0\n"
            "Wait:Reduce1,0 Reduce0,0 Wait:Reduce0,0 Norm Update0 Update1 Update2\n");
}

TEST(Lower, EvaluationIsForwardOnly) {
  const StepShape step = {.shape = {2, 1, 2}, .stage_begin = {0, 2, 4}, .zero = 3};
  const auto program = lower_forward_only(step);
  ASSERT_TRUE(program.ok());
  EXPECT_TRUE(support::matches_golden("schedule/evaluation_zero3.txt", to_lines(*program)));
  EXPECT_TRUE(program->step.forward_only);
  for (const int zero : {0, 1, 2}) {
    StepShape other = step;
    other.zero = zero;
    const auto held = lower_forward_only(other);
    int gathered = 0;
    for (const Op& op : held->list({0})) {
      EXPECT_NE(op.kind, OpKind::kGather);
      gathered += op.kind == OpKind::kAllGatherUpdated ? 1 : 0;
    }
    EXPECT_EQ(gathered, zero == 0 ? 0 : 2) << "what the step before updated must reach everyone";
  }
}

TEST(Lower, TakesShapeAndPlacementFromTheSchedule) {
  const auto schedule = pipeline::Schedule::create({1, 2, 1}, pipeline::Placement::kV,
                                                   {{{pipeline::PassKind::kForward, {0}},
                                                     {pipeline::PassKind::kForward, {1}},
                                                     {pipeline::PassKind::kBackward, {1}},
                                                     {pipeline::PassKind::kBackward, {0}}}});
  const Program program =
      lowered(schedule, {.shape = {7, 7, 7}, .stage_begin = {0, 1, 2}, .forward_only = true});
  EXPECT_EQ(program.step.shape, schedule->shape());
  EXPECT_EQ(program.step.placement, pipeline::Placement::kV);
  EXPECT_FALSE(program.step.forward_only);
  EXPECT_TRUE(program.transfers.empty());  // both stages are on one coordinate
}

TEST(Lower, RefusesBadSteps) {
  const StepShape good = {.shape = {2, 1, 3}, .stage_begin = {0, 2, 4}};
  ASSERT_TRUE(lower(*pipeline::gpipe(good.shape), good).ok());
  const auto expect_refused = [&](const std::function<void(StepShape&)>& spoil,
                                  const std::string& message) {
    StepShape step = good;
    spoil(step);
    for (const auto& result :
         {lower(*pipeline::gpipe(good.shape), step), lower_forward_only(step)}) {
      ASSERT_FALSE(result.ok()) << message;
      EXPECT_EQ(result.error().code, Code::kOutOfRange);
      EXPECT_EQ(result.error().message, message);
      EXPECT_FALSE(result.error().help.empty());
    }
  };
  expect_refused([](auto& s) { s.stage_begin = {}; }, "stage_begin has 0 entries for 2 stages");
  expect_refused([](auto& s) { s.stage_begin = {0, 4}; }, "stage_begin has 2 entries for 2 stages");
  expect_refused([](auto& s) { s.stage_begin = {1, 2, 4}; }, "stage_begin starts with unit 1");
  expect_refused([](auto& s) { s.stage_begin = {0, 4, 4}; },
                 "stage 1 has no unit: it begins with 4, the next with 4");
  expect_refused([](auto& s) { s.stage_begin = {0, 5, 4}; },
                 "stage 1 has no unit: it begins with 5, the next with 4");
  expect_refused([](auto& s) { s.stage_begin = {0, 2, 1 << 24}; },
                 "units x microbatches is more than 16777216");
  expect_refused([](auto& s) { s.zero = 4; }, "zero = 4 is not between 0 and 3");
  expect_refused([](auto& s) { s.zero = -1; }, "zero = -1 is not between 0 and 3");
  expect_refused([](auto& s) { s.resident_units = 0; }, "resident_units = 0 is less than 1");
  expect_refused([](auto& s) { s.prefetch = -1; }, "prefetch = -1 is less than 0");
  expect_refused([](auto& s) { s.recompute = {false, true}; },
                 "recompute has 2 entries for 4 units");
  expect_refused([](auto& s) { s.recompute = {true, true, true, false}; },
                 "unit 0, the embedding, is to be recomputed");
  expect_refused([](auto& s) { s.recompute = {false, true, true, true}; },
                 "unit 3, the head, is to be recomputed");
  expect_refused([](auto& s) { s.tensor_parallel = true, s.partial = {true}; },
                 "partial has 1 entries for 4 units");
  expect_refused([](auto& s) { s.partial = {false, true, true, true}; },
                 "partial gradients are given without tensor parallelism");
  const auto one_unit = lower(*pipeline::gpipe({}), {.stage_begin = {0, 1}});
  EXPECT_EQ(one_unit.error().message, "a model of 1 unit has no embedding or head");
  EXPECT_EQ(lower_forward_only({.shape = {0, 1, 1}}).error().code, Code::kOutOfRange);
}

// A split that loses units trains another model (Megatron-LM issue 1304: 28 of 30 layers built).
TEST(SplitUnits, OwnsEveryUnitOnceAndEvenly) {
  EXPECT_EQ(split_units(10, 1), (std::vector<std::int32_t>{0, 10}));
  EXPECT_EQ(split_units(10, 2), (std::vector<std::int32_t>{0, 5, 10}));
  EXPECT_EQ(split_units(32, 4), (std::vector<std::int32_t>{0, 8, 16, 24, 32}));
  EXPECT_EQ(split_units(4, 4), (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(split_units(5, 4), (std::vector<std::int32_t>{0, 2, 3, 4, 5}));
  for (int units = 2; units < 60; ++units)
    for (int stages = 1; stages <= units + 3; ++stages) {
      const auto begin = split_units(units, stages);
      ASSERT_EQ(begin.size(), static_cast<std::size_t>(stages) + 1);
      ASSERT_EQ(begin.front(), 0);
      ASSERT_EQ(begin.back(), units);
      int fewest = units, most = 0, last = 0;
      for (std::size_t s = 0; s + 1 < begin.size(); ++s) {
        const int count = begin[s + 1] - begin[s];
        ASSERT_GE(count, stages <= units ? 1 : 0) << units << " over " << stages;
        last = count - (s == 0) - (s + 2 == begin.size());  // blocks
        fewest = std::min(fewest, last);
        most = std::max(most, last);
      }
      ASSERT_LE(most - fewest, 1) << units << " over " << stages;
      ASSERT_EQ(last, fewest) << units << " over " << stages;
      const bool accepted =
          lower_forward_only({.shape = {stages, 1, 1}, .stage_begin = begin}).ok();
      ASSERT_EQ(accepted, stages <= units);
    }
}

// 405B: the limit is far above what it takes, and far below anything quadratic.
TEST(Lower, LargePipelinesAreLoweredFast) {
  StepShape step = {.stage_begin = split_units(128, 16),
                    .zero = 3,
                    .period = Period::kMicrobatch,
                    .replicas = true,
                    .recompute = std::vector<bool>(128, true),
                    .resident_units = 3,
                    .prefetch = 2};
  step.recompute.front() = step.recompute.back() = false;
  const auto schedule = pipeline::one_f_one_b({16, 1, 128});
  const std::clock_t start = std::clock();
  const auto program = lower(*schedule, step);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(program.ok());
  std::size_t num_ops = 0;
  for (const auto& list : program->lists) num_ops += list.size();
  EXPECT_GT(num_ops, 100'000u);
  RecordProperty("ms", static_cast<int>(seconds * 1000));
  EXPECT_LT(seconds, 1.0);
}

}  // namespace
}  // namespace lockstep::program
