#include "lockstep/cost/program_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "lockstep/parts/unit_passes.h"
#include "tests/cost/programs.h"
#include "tests/support/net_bytes.h"

namespace lockstep::cost {
namespace {

using parts::UnitPass;
using program::Effects;
using program::Op;
using program::OpKind;
using program::Period;
using program::Program;
using program::ProgramBytes;
using program::UnitBytes;
using program::Value;
using program::ValueKind;

// 16 bytes a parameter in f32, 32 in f64, 18 in bf16 with f32 gradients and a master copy; the
// piece that a stage of ZeRO cuts is an n-th (Rajbhandari et al., arXiv 1910.02054, figure 1).
TEST(ProgramBytes, StatesAreThoseOfZero) {
  const model::Model model = tiny();
  for (const auto& [dtype, whole, piece] :
       {std::tuple{DType::kF32, 8, 8}, {DType::kF64, 16, 16}, {DType::kBF16, 6, 12}})
    for (const model::FlatLayout& flat : flat_layouts(model))
      for (const std::int64_t n : {1, 2, 3, 8}) {
        const StateBytes all = state_bytes(flat, 0, dtype, n);
        EXPECT_EQ(all.elements, (flat.size + 255) / 256 * 256);
        EXPECT_EQ(all.param + all.main_grad, whole * all.elements);
        EXPECT_EQ(all.optimizer, piece * all.elements);
        for (const int zero : {1, 2, 3}) {
          const StateBytes cut = state_bytes(flat, zero, dtype, n);
          EXPECT_EQ(cut.elements, (flat.size + 256 * n - 1) / (256 * n) * (256 * n));
          EXPECT_EQ(cut.param + cut.main_grad, whole * cut.elements);
          EXPECT_EQ(cut.param_shard * n, cut.param);
          EXPECT_EQ(cut.grad_shard * n, cut.main_grad);
          EXPECT_EQ(cut.optimizer * n, piece * cut.elements);
        }
      }
}

TEST(ProgramBytes, CoordinatesHoldTheTokensAndTablesTheyUse) {
  const model::Model model = tiny();
  const StepSizes sizes{.unit = {.batch = 2, .seq = 16}};
  const std::int64_t tokens = 2 * 16 * 8;
  const std::int64_t rope = 2 * 16 * 8 * 4;
  const auto of = [&](int pp) {
    return program_bytes(model, program_of({.pp = pp}, 6).step, sizes);
  };
  EXPECT_EQ(of(1).tokens, (std::vector<std::int64_t>{2 * tokens}));
  EXPECT_EQ(of(3).tokens, (std::vector<std::int64_t>{tokens, 0, tokens}));
  EXPECT_EQ(of(3).constants, (std::vector<std::int64_t>{rope, rope, rope}));
  program::StepShape v;  // two coordinates, four stages: 0 1 1 0
  v.shape = {2, 2, 1};
  v.placement = pipeline::Placement::kV;
  v.stage_begin = {0, 1, 3, 5, 6};
  EXPECT_EQ(program_bytes(model, v, sizes).tokens, (std::vector<std::int64_t>{2 * tokens, 0}));
  EXPECT_EQ(program_bytes(model, v, sizes).constants, (std::vector<std::int64_t>{0, rope}));
}

// What effects() makes an op define and kill, in bytes, is what the passes of arch leave behind.
class EveryOp {
 public:
  EveryOp(const model::Model& model, const Program& program, const StepSizes& sizes)
      : model_(model),
        program_(program),
        sizes_(sizes),
        bytes_(program_bytes(model, program.step, sizes)) {}

  void check_all() {
    for (int coord = 0; coord < program_.step.shape.coords; ++coord)
      for (const Op& op : program_.list(Coord{coord})) check(Coord{coord}, op);
  }
  int checked = 0;

 private:
  void check(Coord coord, const Op& op) {
    const Effects fx = effects(program_, coord, op);
    std::int64_t growth = 0;
    std::int64_t main_grad = 0;
    for (const auto* values : {&fx.defines, &fx.kills})
      for (const Value& value : *values) {
        if (value.kind == ValueKind::kTokens) continue;  // read by the passes, owned by Load
        const std::int64_t size = value_bytes(program_, coord, bytes_, value);
        growth += values == &fx.defines ? size : -size;
        if (value.kind == ValueKind::kMainGrad) main_grad = size;
      }
    const std::optional<parts::MemoryEvents> events = events_of(op, main_grad);
    if (!events) return;
    ++checked;
    EXPECT_EQ(growth, net(*events)) << "unit " << op.unit << " kind " << static_cast<int>(op.kind);
    EXPECT_EQ(surge(op, main_grad > 0), extra(*events, main_grad));
  }

  std::optional<parts::MemoryEvents> events_of(const Op& op, std::int64_t main_grad) const {
    const auto of = [&](UnitPass pass) {
      return parts::UnitPasses(model_.config, model_.unit(op.unit), sizes_.unit).events(pass);
    };
    const auto with_gradients = [&](UnitPass pass) {
      parts::MemoryEvents events = of(pass);
      std::ranges::find(events, parts::kGradients, &parts::MemoryEvent::name)->bytes = main_grad;
      return events;
    };
    const bool splits_first = main_grad > 0 && op.unit != program_.step.head();
    switch (op.kind) {
      case OpKind::kForward:
        if (program_.step.forward_only) return of(UnitPass::kEvaluate);
        return of(program_.step.recomputes(op.unit) ? UnitPass::kCheckpoint : UnitPass::kForward);
      case OpKind::kRecompute:
        return of(UnitPass::kRecompute);
      case OpKind::kInputGrad:
        return of(UnitPass::kInputGrad);
      case OpKind::kWeightGrad:
        return with_gradients(UnitPass::kWeightGrad);
      case OpKind::kBackward:
        return with_gradients(splits_first ? UnitPass::kFirstBackward : UnitPass::kBackward);
      default:
        return {};
    }
  }

  std::int64_t surge(const Op& op, bool first) const {
    const UnitBytes& unit = bytes_.units[static_cast<std::size_t>(op.unit)];
    switch (op.kind) {
      case OpKind::kForward:
        return unit.forward;
      case OpKind::kRecompute:
        return unit.recompute;
      case OpKind::kInputGrad:
        return unit.input_grad;
      case OpKind::kWeightGrad:
        return first ? unit.first_weight_grad : unit.weight_grad;
      default:
        return first ? unit.first_backward : unit.backward;
    }
  }

  const model::Model& model_;
  const Program& program_;
  const StepSizes& sizes_;
  const ProgramBytes bytes_;
};

TEST(ProgramBytes, AgreeWithTheEffectsOfEveryOp) {
  const model::Model model = tiny();
  const std::vector<bool> some = {false, true, false, true, true, false};
  for (const int pp : {1, 2, 3})
    for (const int zero : {0, 1, 2, 3})
      for (const Period period : {Period::kStep, Period::kMicrobatch})
        for (const bool recompute : {false, true}) {
          const Program program = program_of({.pp = pp,
                                              .microbatches = 3,
                                              .zero = zero,
                                              .period = period,
                                              .recompute = recompute ? some : std::vector<bool>{}},
                                             6);
          for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}}) {
            const StepSizes sizes{.unit = {.batch = 2,
                                           .seq = 16,
                                           .drop = {.attn_normed = recompute, .product = zero > 1},
                                           .head_chunk = 10,
                                           .tp = tp,
                                           .sequence_parallel = sp},
                                  .shards = 2};
            EveryOp every(model, program, sizes);
            every.check_all();
            EXPECT_EQ(every.checked, 3 * (6 * 2 + (recompute ? 3 : 0)));
          }
        }
  const Program evaluation = *program::lower_forward_only(program_of({.pp = 2}, 6).step);
  const StepSizes sizes{.unit = {.seq = 16}};
  EveryOp every(model, evaluation, sizes);
  every.check_all();
  EXPECT_EQ(every.checked, 6);
}

// I and W of a unit on its own, as zero-bubble schedules have them, are the two halves of B.
TEST(ProgramBytes, SplitPassesAddUpToTheFusedOne) {
  const model::Model model = tiny();
  for (const std::int64_t seq : {8, 128, 1024}) {
    const ProgramBytes bytes = program_bytes(model, program_of({}, 6).step, {.unit = {.seq = seq}});
    for (std::size_t u = 0; u < 5; ++u) {
      const UnitBytes& unit = bytes.units[u];
      // The gradients of input and output are of one size, but nothing comes before an embedding.
      const std::int64_t halfway = unit.weight_work - unit.stash - (u == 0 ? unit.act : 0);
      EXPECT_EQ(unit.weight_grad, 0);
      EXPECT_EQ(unit.first_weight_grad, unit.main_grad);
      EXPECT_LE(unit.backward, std::max(unit.input_grad, halfway));
      EXPECT_TRUE(u == 0 || unit.backward < unit.input_grad);
      EXPECT_EQ(unit.first_backward, std::max(unit.input_grad, halfway + unit.main_grad));
    }
    const UnitBytes& head = bytes.units[5];
    EXPECT_LE(head.first_backward, head.main_grad + head.backward);
    EXPECT_GT(head.first_backward, head.main_grad);
  }
}

// One coordinate, two microbatches: all is alive around the loss of the second. Either the head is
// at its worst, or the last block's MLP just after it, whichever the vocabulary makes larger.
TEST(ProgramBytes, PeakOfOneRankEqualsASumByHand) {
  for (const std::int64_t vocab : {128, 4096}) {
    model::ModelConfig config = tiny().config;
    config.vocab = vocab;
    const model::Model model = *model::describe(config);
    const StepSizes sizes{.unit = {.batch = 4, .seq = 128}};
    const Program program = program_of({.microbatches = 2}, 6);
    const ProgramBytes bytes = program_bytes(model, program.step, sizes);
    const program::MemoryWalk walked = walk(program, Coord{0}, bytes);

    const std::int64_t t = 4 * 128;
    const std::int64_t block = 4 * t * (4 * 64 + 2 + 2 * 64 + 2 * 32 + 3 * 176) + 4 * t * 4;
    const std::int64_t block_params = 64 * (64 + 2 * 32 + 64) + 3 * 64 * 176 + 2 * 64;
    ASSERT_EQ(block_params % 256, 128);
    const std::int64_t ends = 2 * vocab * 64 + 256;  // the head's norm of 64 fills a tile
    const std::int64_t elements = 4 * (block_params + 128) + ends;
    const std::int64_t rope = 2 * 128 * 8 * 4;
    const std::int64_t tokens = 2 * 8 * t;
    // Input, factors and output of the head's norm, the gradient of that, logits, losses.
    const std::int64_t loss = 4 * t * (64 + 1 + 2 * 64) + 4 * t * vocab + 8 * t;
    // Gradient of the output, of the product, of gate and up; the product itself is gone.
    const std::int64_t mlp = 4 * t * (64 + 176 + 2 * 176 - 176);
    EXPECT_EQ(loss > mlp, vocab == 4096);
    EXPECT_EQ(walked.before, 12 * elements + rope);
    EXPECT_EQ(walked.peak, 16 * elements + rope + tokens + 4 * block + std::max(loss, mlp));
    EXPECT_EQ(walked.live.back(), walked.before);
  }
}

}  // namespace
}  // namespace lockstep::cost
