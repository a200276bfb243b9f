#include "lockstep/spec/step.h"

#include <gtest/gtest.h>

#include <map>

#include "lockstep/model/catalog.h"
#include "lockstep/program/effects.h"
#include "lockstep/spec/layout_space.h"
#include "lockstep/spec/legal.h"
#include "lockstep/spec/shrink.h"

namespace lockstep::spec {
namespace {

constexpr Batch kStepBatch = {.seq = 32, .global_batch = 16, .microbatch = 1};

model::Model small(const char* name) { return *model::describe(shrink(model::find(name)->config)); }

TEST(StepShape, SaysWhatTheLayoutSays) {
  const model::Model model = small("llama3.2-1b");
  const Layout layout =
      *parse_layout("pp2 dp2x2 zero3 gpipe m2 mb recompute=full resident=3 prefetch=0");
  const program::StepShape step = step_shape(model, layout, cut(kStepBatch, layout));
  EXPECT_EQ(step.shape, (pipeline::Shape{.coords = 2, .chunks = 1, .microbatches = 2}));
  EXPECT_EQ(step.stage_begin, (std::vector<std::int32_t>{0, 3, 6}));
  EXPECT_EQ(step.zero, 3);
  EXPECT_EQ(step.period, Period::kMicrobatch);
  EXPECT_TRUE(step.replicas);
  EXPECT_TRUE(step.tied);
  EXPECT_EQ(step.recompute, (std::vector<bool>{false, true, true, true, true, false}));
  EXPECT_EQ(step.resident_units, 3);
  EXPECT_EQ(step.prefetch, 0);

  const Layout uneven = *parse_layout("pp2 dp2 layers=3+1");
  EXPECT_EQ(step_shape(model, uneven, kStepBatch).stage_begin,
            (std::vector<std::int32_t>{0, 4, 6}));
  EXPECT_EQ(program_for(model, uneven, kStepBatch)->step.coord_of(3), Coord{0});

  const Layout flat = *parse_layout("dp4 zero1 recompute=selective");
  const program::StepShape plain = step_shape(small("llama3-8b"), flat, kStepBatch);
  EXPECT_EQ(plain.shape.microbatches, 4);
  EXPECT_FALSE(plain.replicas);
  EXPECT_FALSE(plain.tied);
  EXPECT_TRUE(plain.recompute.empty());
}

// Norms of blocks and head; in gpt2 the positions of the embedding too.
TEST(StepShape, SequenceParallelismMakesGradientsPartial) {
  Layout layout = {.degrees = {.tp = 2}};
  const auto shape_of = [&](const char* name) {
    return step_shape(small(name), layout, kStepBatch);
  };
  EXPECT_TRUE(shape_of("llama3-8b").tensor_parallel);
  EXPECT_EQ(shape_of("llama3-8b").partial,
            (std::vector<bool>{false, true, true, true, true, true}));
  EXPECT_EQ(shape_of("gpt2").partial, std::vector<bool>(6, true));
  layout.sp = false;
  EXPECT_TRUE(shape_of("llama3-8b").tensor_parallel);
  EXPECT_TRUE(shape_of("llama3-8b").partial.empty());
  EXPECT_TRUE(shape_of("gpt2").partial.empty());
  EXPECT_EQ(
      shape_of("qwen3-8b").partial,  // gains that every head uses, and each rank has its heads
      (std::vector<bool>{false, true, true, true, true, false}));
  layout = {};
  EXPECT_FALSE(shape_of("llama3-8b").tensor_parallel);
  EXPECT_TRUE(shape_of("llama3-8b").partial.empty());
}

// As the layout says, else as pipeline/layer_split.h does.
TEST(StageLayers, AreThoseOfTheLayoutOrTheDefault) {
  EXPECT_EQ(stage_layers(*parse_layout("pp4"), 30), (std::vector<int>{7, 8, 8, 7}));
  EXPECT_EQ(stage_layers(*parse_layout("pp2 interleaved vpp2"), 7), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(stage_layers(*parse_layout("pp2 layers=20+10"), 30), (std::vector<int>{20, 10}));
}

// The first blocks of each stage, neither the embedding nor the head.
TEST(StepShape, RecomputesSomeBlocksOfAStage) {
  const model::Model model = *model::describe(model::find("llama3-8b")->config);  // 32 layers
  Layout layout{.degrees = {.pp = 4}, .recompute = {model::kWholeBlock, {2, 0, 1, 7}}};
  layout.layers = {9, 8, 8, 7};
  const auto step = step_shape(model, layout, {.seq = 64, .global_batch = 4});
  std::vector<int> recomputed;
  for (std::size_t unit = 0; unit < step.recompute.size(); ++unit)
    if (step.recompute[unit]) recomputed.push_back(static_cast<int>(unit));
  EXPECT_EQ(recomputed, (std::vector<int>{1, 2, 18, 26, 27, 28, 29, 30, 31, 32}));
  EXPECT_EQ(step.recompute.size(), 34u);
}

// A million ranks cost what one replica costs: ranks enter a program by the sizes of their groups
// alone, so its lists are the same.
TEST(ProgramFor, DoesNotGrowWithTheDataDegree) {
  const model::Model model = *model::describe(model::find("llama3-405b")->config);
  Layout layout = {.degrees = {.tp = 8, .pp = 16},
                   .zero = 3,
                   .schedule = "interleaved",
                   .chunks = 8,
                   .reduce = Period::kMicrobatch,
                   .recompute = {model::kWholeBlock}};
  const auto program_of = [&](std::int64_t dp) {
    layout.degrees.dp = dp;
    return program_for(model, layout, {.seq = 8192, .global_batch = 128 * dp, .microbatch = 1});
  };
  const auto small = program_of(128), large = program_of(8192);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(mesh::Mesh::create(layout.degrees)->world(), 1 << 20);
  EXPECT_GT(small->lists[1].size(), 10000u);
  EXPECT_TRUE(*small == *large);
}

TEST(ProgramFor, LowersEveryLegalLayoutToAProgramOfItsOwn) {
  const model::Model model = small("llama3-8b");
  for (const std::int64_t ranks : {1, 4}) {
    std::map<std::string, std::string> first;  // ops in text, and the mesh: who had them first
    for (const Layout& layout : layouts(model.config, ranks, kStepBatch)) {
      const Batch batch = cut(kStepBatch, layout);
      const auto program = program_for(model, layout, batch);
      ASSERT_TRUE(program.ok()) << to_text(layout) << ": " << program.error().message;
      EXPECT_EQ(program->lists.size(), static_cast<std::size_t>(layout.degrees.pp));
      // Beside the ops, a step is told by its groups, its microbatches and the rows it keeps.
      std::string text =
          to_text(
              Layout{.degrees = layout.degrees, .context = layout.context, .zero = layout.zero}) +
          to_text(layout.recompute) + std::to_string(batch.microbatch);
      for (const auto& list : program->lists)
        for (const program::Op& op : list)
          for (const int number : {static_cast<int>(op.kind), static_cast<int>(op.group), op.unit,
                                   op.microbatch, op.period, op.transfer, op.target})
            text += ' ' + std::to_string(number);
      const auto [at, is_new] = first.emplace(text, to_text(layout));
      EXPECT_TRUE(is_new) << to_text(layout) << " is the same as " << at->second;
    }
  }
}

// What layouts() leaves out is legal and makes no other program.
TEST(ProgramFor, SettingsThatAreLeftOutMakeNoDifference) {
  const model::Model model = small("llama3-8b");
  const auto lists = [&](const std::string& name) {
    const Layout layout = *parse_layout(name);
    const Batch batch = cut(kStepBatch, layout);
    EXPECT_TRUE(legal(model.config, layout, batch, DType::kF32).empty()) << name;
    return program_for(model, layout, batch)->lists;
  };
  for (const std::string mesh : {"dp4 ", "dp2x2 ", "pp2 dp2 ", "pp4 dp1 "})
    for (const std::string zero : {"zero0 ", "zero1 ", "zero2 ", "zero3 "}) {
      if (mesh == "dp2x2 " && zero == "zero0 ") continue;
      EXPECT_EQ(lists(mesh + zero + "m1 step"), lists(mesh + zero + "m1 mb")) << mesh << zero;
      EXPECT_EQ(lists(mesh + zero + "1f1b m1"), lists(mesh + zero + "gpipe m1")) << mesh << zero;
      // One stage is not enough to make schedules equal.
      EXPECT_NE(lists(mesh + zero + "1f1b m2"), lists(mesh + zero + "gpipe m2")) << mesh << zero;
    }
}

TEST(ProgramFor, IsRefusedForAnUnknownSchedule) {
  Layout layout;
  layout.schedule = "2f2b";
  EXPECT_EQ(program_for(small("llama3-8b"), layout, kStepBatch).error().code, Code::kUnknownChoice);
}

Spec spec_with(const char* layout) {
  Spec spec;
  spec.layout = parse_layout(layout).value();
  spec.batch = {.seq = 32, .global_batch = 8, .microbatch = 2};
  spec.train.dtype = DType::kF32;
  return spec;
}

TEST(StepSizes, FollowTheLayout) {
  const cost::StepSizes sizes = step_sizes(spec_with("tp2 dp4x2 zero3 recompute=selective"));
  EXPECT_EQ(sizes.unit.batch, 2);
  EXPECT_EQ(sizes.unit.seq, 32);
  EXPECT_EQ(sizes.unit.dtype, DType::kF32);
  EXPECT_EQ(sizes.unit.tp, 2);
  EXPECT_TRUE(sizes.unit.sequence_parallel && sizes.unit.drop.product);
  EXPECT_EQ(sizes.shards, 2);
  EXPECT_FALSE(sizes.looks_at_noise);
}

TEST(StepSizes, SharesRowsAmongSeveralTensorRanksOnly) {
  EXPECT_FALSE(step_sizes(spec_with("dp4 zero1")).unit.sequence_parallel);
  EXPECT_FALSE(step_sizes(spec_with("tp2 dp1 nosp")).unit.sequence_parallel);
  EXPECT_EQ(step_sizes(spec_with("dp4 zero1")).shards, 4);
  Spec tuned = spec_with("dp4 zero1");
  tuned.train.head_chunk = 5;
  tuned.train.threads = 3;
  EXPECT_EQ(step_sizes(tuned).unit.head_chunk, 5);
  EXPECT_EQ(step_sizes(tuned).unit.threads, 3);
}

}  // namespace
}  // namespace lockstep::spec
