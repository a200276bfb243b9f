#include "lockstep/spec/train_rules.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::spec {
namespace {

std::string eval_refusal(std::int64_t samples, std::int64_t dp, std::int64_t microbatch) {
  std::string text;
  for (const Contradiction& found : against_evaluation(samples, dp, {8, 8, microbatch}))
    text += found.error.message + "; " + found.error.help + "\n";
  return text;
}

TEST(EvaluationRules, WantWholeMicrobatchesOnEveryRank) {
  EXPECT_EQ(eval_refusal(24, 3, 4), "");
  EXPECT_EQ(eval_refusal(30, 3, 4),
            "eval_samples = 30 is not a multiple of dp x microbatch = 3 x 4 = 12; the nearest "
            "eval_samples: 24 or 36\n");
  EXPECT_EQ(eval_refusal(2, 3, 4),
            "eval_samples = 2 is not a multiple of dp x microbatch = 3 x 4 = 12; the nearest "
            "eval_samples: 12\n");
}

std::string refusal(bool tied, const Batch& batch, std::int64_t steps = 10) {
  model::ModelConfig model;
  model.tied = tied;
  std::string text;
  for (const Contradiction& found : against_noise_scale(steps, model, batch))
    text += found.error.message + "; " + found.error.help + "\n";
  return text;
}

TEST(NoiseScaleRules, NeedAnotherMicrobatchInEveryBatch) {
  EXPECT_EQ(refusal(false, {8, 8, 4}), "");
  EXPECT_EQ(refusal(false, {8, 4, 4}),
            "noise_scale = 10 with global_batch = 4: a batch that is one microbatch of 4 has "
            "nothing to compare it with; the nearest global_batch: 8; or a smaller microbatch; or "
            "noise_scale = 0\n");
  EXPECT_EQ(refusal(false, {8, 8, 1, {2, 2, 16}}), "");
  EXPECT_EQ(refusal(false, {8, 8, 1, {1, 1, 16}}),
            "noise_scale = 10 with ramp_start = 1: a batch that is one microbatch of 1 has nothing "
            "to compare it with; the nearest ramp_start: 2; or noise_scale = 0\n");
}

TEST(NoiseScaleRules, RefuseATiedHead) {
  EXPECT_EQ(refusal(true, {8, 8, 4}),
            "noise_scale = 10 with tied = true: a weight that embedding and head share gets its "
            "gradient in two parts, and the first microbatch's are not added up yet; set "
            "noise_scale = 0, or tied = false\n");
}

TEST(NoiseScaleRules, AskNothingOfARunThatDoesNotMeasure) {
  EXPECT_EQ(refusal(true, {8, 4, 4}, 0), "");
}

TEST(ExpertParallelRules, RefuseTheNoiseScale) {
  model::ModelConfig mixture;
  mixture.moe.experts = 4;
  EXPECT_TRUE(against_expert_parallelism({.tp = 2, .etp = 2}, 10, mixture).empty());
  EXPECT_TRUE(against_expert_parallelism({.dp = 2, .ep = 2}, 0, mixture).empty());
  EXPECT_TRUE(against_expert_parallelism({.tp = 2}, 10, {}).empty());
  const auto found = against_expert_parallelism({.dp = 2, .ep = 2}, 10, mixture);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].error.message, "noise_scale = 10 with ep = 2 cannot be run yet");
  const auto whole = against_expert_parallelism({.tp = 2, .etp = 1}, 10, mixture);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].error.message,
            "noise_scale = 10 with etp = 1 beside tp = 2 cannot be run yet");
  EXPECT_EQ(whole[0].error.help, "set noise_scale = 0, or etp = 2");
}

TEST(RouterLossRules, NeedARouter) {
  model::ModelConfig model;
  model.moe.experts = 4;
  EXPECT_TRUE(against_router_losses(0.1, 0.1, model).empty());
  model.moe.experts = 0;
  EXPECT_TRUE(against_router_losses(0, 0, model).empty());
  const auto found = against_router_losses(0.25, 0.5, model);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].error.message, "moe_aux_loss_coeff = 0.25, but the model has no experts");
  EXPECT_EQ(found[1].error.help, "set moe_z_loss_coeff = 0, or choose a mixture of experts");
}

}  // namespace
}  // namespace lockstep::spec
