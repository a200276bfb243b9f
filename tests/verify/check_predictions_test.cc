#include "lockstep/verify/check_predictions.h"

#include <gtest/gtest.h>

#include "lockstep/data/mock_tokens.h"
#include "tests/train/tiny.h"

namespace lockstep::verify {
namespace {

// As measured, and with one more byte sent or held.
TEST(CheckPredictions, FindsWhatDiffers) {
  const spec::Spec spec = train::tiny_spec(false, DType::kF32);
  const train::Job job = train::job_of(spec, "dp2 zero1 m2");
  const data::MockTokens tokens(1, spec.model.vocab, true);
  const StepOrder order{.step = 0};
  const TrialResult trial = run_trial(job, tokens, {&order, 1}, Seconds{60});
  ASSERT_EQ(trial.ranks.size(), 2u);
  for (const RankRecord& record : trial.ranks) {
    EXPECT_EQ(check_predictions(job, record).mismatch, "");
    RankRecord sent = record;
    sent.steps[0].ledger.begin()->second.sent.value += 1;
    EXPECT_NE(check_predictions(job, sent).mismatch.find("predicted "), std::string::npos);
    RankRecord held = record;
    held.steps[0].live.back() += 1;
    EXPECT_NE(check_predictions(job, held).mismatch.find("live bytes, measured"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::verify
