// Published figures that the planner must reproduce, beside those in tests of the parts: A1 and A2
// in seeds_test.cc and peak_memory_test.cc, A3 in model_shape_test.cc, A4 to A6 and A15 in
// peak_memory_test.cc, A7 and A21 in prices_test.cc, A13 in step_time_test.cc, A16 and A17 in
// stage_split_test.cc, A18 in collective_time_test.cc, A8, A9, A12 and A19 in score_test.cc, A22 in
// goodput_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "lockstep/cost/analytic/stage_split.h"
#include "lockstep/model/state_bytes.h"
#include "lockstep/planner/finalists.h"
#include "lockstep/planner/goodput.h"
#include "tests/cost/analytic/requests.h"
#include "tests/planner/questions.h"
#include "tests/support/total_params.h"

namespace lockstep {
namespace {

using cost::PriceRequest;
using cost::Rig;

// FLOPs of a token when every block runs forward twice and the head once: 96 l h^2 (1 + s / 6h + V
// / 16lh), equation 3 of Narayanan et al. (arXiv 2104.04473).
double hardware_flops(const cost::ModelShape& shape, double seq) {
  const cost::ForwardFlops flops = forward_flops(shape, seq);
  const double head = 2 * shape.vocab * shape.hidden;
  return 4 * (flops.matmul - head + flops.attention_full) + 3 * head;
}

TEST(Anchors, HardwareFlopsAreThoseOfNarayanan) {
  for (const auto& [l, h, a] : {std::tuple{96, 12288.0, 96.0}, {128, 25600.0, 160.0}})
    EXPECT_NEAR(hardware_flops(cost::megatron_gpt(l, h, a), 2048) /
                    (96 * l * h * h * (1 + 2048 / (6 * h) + 51200 / (16 * l * h))),
                1, 1e-9);
}

// Anchor A10: 8 T P / (n X), four passes of two FLOPs per parameter: 175B for 300B tokens on 1,024
// devices at 140 TFLOP/s take 33.9 days, 1T for 450B on 3,072 at 163 take 83.2 (section 5.1 there:
// 34 and 84).
TEST(Anchors, DaysOfTraining) {
  struct Row {
    int layers;
    double hidden, heads, tokens, devices, flops, days;
  };
  for (const Row& row : {Row{96, 12288, 96, 300e9, 1024, 140e12, 33.9},
                         Row{128, 25600, 160, 450e9, 3072, 163e12, 83.2}}) {
    const cost::ModelShape shape = cost::megatron_gpt(row.layers, row.hidden, row.heads);
    const double passes = 4 * forward_flops(shape, 2048).matmul;
    EXPECT_NEAR(passes / (8 * total_params(shape)), 1, 0.01);
    EXPECT_NEAR(passes * row.tokens / (row.devices * row.flops) / 86400 / row.days, 1, 0.01)
        << row.days;
  }
}

void fp16_stack(PriceRequest& r) {
  r.stack.flash = false;
  r.stack.dropout = true;
  r.stack.overlap_data = r.stack.overlap_tensor = r.stack.overlap_pipe = false;
  r.stack.grad_bytes = 2;
  r.sp = false;
  r.zero = 0;
}

// Anchor A11: 1T on 3,072 A100 with (8, 64) runs at 502 PFLOP/s, 52 % of the peak (Narayanan et
// al., table 1). The price is within a tenth.
TEST(Anchors, TrillionParametersOnThreeThousandDevices) {
  EXPECT_NEAR(502e15 / (3072 * 312e12), 0.52, 0.005);
  Rig rig(cost::megatron_gpt(128, 25600, 160), "a100:3072");
  fp16_stack(rig.request);
  rig.request.drop = model::kWholeBlock;
  rig.request.tp = 8, rig.request.pp = 64, rig.request.dp = 6;
  rig.request.global_batch = 3072;
  const double all = hardware_flops(rig.shape, 2048) * price(rig.request).tokens_per_s;
  EXPECT_NEAR(all / 502e15, 1, 0.1);
}

// Anchor A14: 430 TFLOP/s on 8,192 devices become 389 with four chunks and 407 with eight on 16,384
// if nothing but the bubble changes, from 32 to 16 microbatches; 400 were measured (Llama 3, arXiv
// 2407.21783, table 4).
TEST(Anchors, Llama3SecondRowByItsBubbleAlone) {
  for (const auto& [chunks, expected] : {std::pair{4, 389.0}, {8, 407.0}}) {
    Rig rig("llama3-405b", "h100:8192");
    PriceRequest& r = rig.request;
    r.pp = 16, r.chunks = chunks, r.schedule = &pipeline::row("interleaved");
    const double bubble = bubble_seconds(r, 1, 2);
    EXPECT_NEAR(430 * (32 * 3 + bubble) / 32 / ((16 * 3 + bubble) / 16), expected, 0.5) << chunks;
  }
}

// Anchor A20: GPT-3 in batches of 1,152 sequences at 47 % of the peak on 96 H100 and at 42 % on
// 4,608 (Megatron-LM's README), by the best layout of those that its software has. Within two
// points on 4,608; on 96 the price is seven too high: it is of later software, which NVIDIA
// measured at 50 and 54 % on 128 (its DGX Cloud recipes, calibration rows).
TEST(Anchors, StrongScalingOfGpt3) {
  struct Row {
    const char* machine;
    double measured, within;
  };
  for (const auto& [machine, measured, within] :
       {Row{"h100:96", 0.47, 0.075}, {"h100:4608", 0.42, 0.02}}) {
    planner::Asked asked("gpt3-175b", machine, 2048, 1152);
    asked.question.schedules = {&pipeline::row("1f1b"), &pipeline::row("interleaved")};
    asked.question.most_zero = 1;
    asked.question.cp = 1;
    const auto whole = simulate(walk(planner::Lattice(asked.question), 64).best);
    ASSERT_FALSE(whole.empty());
    const planner::Priced& first = whole.front().priced;
    EXPECT_NEAR(first.price.mfu_full * first.seconds() / whole.front().seconds, measured, within)
        << machine;
  }
}

// Anchor A23: t5-3b, 2,851 M parameters under ZeRO-2 on 8 devices. Ours is 2P + (4 + 12) P / n:
// weights whole, f32 gradients, master weights and moments shared. DeepSpeed's estimator adds a
// 16-bit gradient to the share, 2P + 18P / n = 12.1 GB; the page that documents it keeps that
// gradient whole, 4P + 16P / n = 15.93 GiB (memory.rst there).
TEST(Anchors, DeepSpeedsTwoEstimatesOfStageTwo) {
  const double parameters = 2851e6, n = 8;
  const double ours = parameters * state_share(model::StateWidths{2, 4, 12}, 2, 8).total();
  EXPECT_DOUBLE_EQ(ours, parameters * (2 + 16 / n));
  EXPECT_NEAR((ours + 2 * parameters / n) / 1e9, 12.1, 0.05);
  EXPECT_NEAR((ours + 2 * parameters) / 1073741824, 15.93, 0.005);
}

// Llama 3's own layout, tp 8 and pp 16, among all that its software could run at 8,192 tokens:
// interleaved or plain 1F1B, at most gradients sharded, sequences whole. By our prices it is the
// first. Cutting the sequences too would make a step shorter by 6 %, which nobody has measured;
// Llama 3 did that for long ones alone.
TEST(Anchors, Llama3sLayoutIsTheFirst) {
  planner::Asked asked("llama3-405b", "h100:16384", 8192, 2048);
  asked.question.schedules = {&pipeline::row("1f1b"), &pipeline::row("interleaved")};
  asked.question.most_zero = 2;
  asked.question.cp = 1;
  const auto whole = simulate(walk(planner::Lattice(asked.question), 64).best);
  ASSERT_FALSE(whole.empty());
  const PriceRequest& first = whole.front().priced.request;
  EXPECT_EQ(first.tp, 8);
  EXPECT_EQ(first.pp, 16);
  EXPECT_EQ(first.dp, 128);
}

// Of 419 interruptions of Llama 3's run 148 were GPUs and 78 % hardware (arXiv 2407.21783, section
// 3.3.4), and more than 90 % of the time made progress. Without the other kinds there would be more
// of it, in that order.
TEST(Anchors, InterruptionsOfLlama3) {
  const double hours = 16384.0 * 54 * 24;
  const auto share = [&](double interruptions) {
    return planner::goodput(16384, {.device_hours = hours / interruptions}).share;
  };
  EXPECT_DOUBLE_EQ(share(419), planner::goodput(16384, {}).share);
  EXPECT_GT(share(419), 0.9);
  EXPECT_GT(share(0.78 * 419), share(419));
  EXPECT_GT(share(148), share(0.78 * 419));
  // What is lost goes with the root of the rate while saves are cheap and failures rare.
  EXPECT_NEAR((1 - share(0.78 * 419)) / (1 - share(419)), 0.8, 0.05);
}

}  // namespace
}  // namespace lockstep
