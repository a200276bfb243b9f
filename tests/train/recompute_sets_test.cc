// Whatever set of its tensors a block drops and makes again, training has the same bits, and memory
// and traffic are as predicted.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/check_predictions.h"
#include "lockstep/verify/trial.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

constexpr const char* kFamilies[] = {"llama", "mistral", "qwen2", "qwen3", "gpt2"};
constexpr const char* kLayouts[] = {"dp1 zero0 m2",          "tp2 dp1 zero1 m2",
                                    "tp2 nosp dp1 zero0 m2", "pp2 dp1 zero0 zb-h1 m4",
                                    "dp2 zero3 m2",          "tp2 pp2 dp1 zero0 zb-h1 m4"};

spec::Spec spec_of(const std::string& family, DType dtype) {
  spec::Spec spec = small_spec(false);
  spec.train.dtype = dtype;
  spec.model.qkv_bias = family == "qwen2" || family == "gpt2";
  if (family == "mistral") spec.model.window = spec.batch.seq;
  if (family == "qwen3") spec.model.qk_norm = model::QkNorm::kPerHead;
  if (family == "gpt2") {
    spec.model.family = model::Family::kGpt2;
    spec.model.norm = model::NormKind::kLayerNorm;
    spec.model.kv_heads = spec.model.heads;
    spec.model.linear_bias = true;
  }
  return spec;
}

// Bits of a step; fails where a rank's memory or traffic is not as predicted.
std::string bits_of_step(const spec::Spec& spec, const std::string& layout) {
  SCOPED_TRACE(layout);
  const Job job = job_of(spec, layout);
  const data::MockTokens tokens(1, spec.model.vocab, true);
  const verify::StepOrder orders[] = {{0, nullptr}};
  const verify::TrialResult trial = verify::run_trial(job, tokens, orders, Seconds{60});
  EXPECT_EQ(trial.disagreement, "");
  for (const verify::RankRecord& rank : trial.ranks) {
    const verify::PredictionCheck check = verify::check_predictions(job, rank);
    EXPECT_EQ(check.mismatch, "");
    EXPECT_EQ(check.peak_bytes, check.predicted_peak);
  }
  return bits_of(trial.images);
}

TEST(RecomputeSets, ChangeNoBitAndTakeWhatIsPredicted) {
  std::mt19937 random(1);
  std::map<std::string, std::string> kept;  // bits where nothing is dropped
  for (int n = 0; n < 300; ++n) {
    const std::string family = kFamilies[random() % std::size(kFamilies)];
    const std::string layout = kLayouts[random() % std::size(kLayouts)];
    const DType dtype = random() % 2 == 0 ? DType::kF64 : DType::kF32;
    const spec::Spec spec = spec_of(family, dtype);
    SCOPED_TRACE(family + " " + std::string(to_text(dtype)));
    std::string set;
    while (set.empty())
      for (const model::DropRow& row : model::kDropRows)
        if (random() % 2 == 0) set += (set.empty() ? "" : "+") + std::string(row.name);
    std::string& bits = kept[family + layout + std::string(to_text(dtype))];
    if (bits.empty()) bits = bits_of_step(spec, layout);
    EXPECT_EQ(bits_of_step(spec, layout + " recompute=" + set), bits) << layout << " " << set;
  }
}

}  // namespace
}  // namespace lockstep::train
