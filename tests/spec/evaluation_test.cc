#include "lockstep/spec/evaluation.h"

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

}  // namespace
}  // namespace lockstep::spec
