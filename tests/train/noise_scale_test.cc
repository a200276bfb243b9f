#include "lockstep/train/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/check_predictions.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

constexpr int kNoisySteps = 3;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// All ways to draw four gradients from a population of three: what the estimators are on average is
// then exact, and must be the population's own gradient and variance.
TEST(NoiseScale, IsUnbiasedOverEveryDraw) {
  const double population[3][2] = {{1, 0}, {0.5, 2}, {-0.25, 3}};
  const auto mean_of = [&](const std::vector<int>& drawn) {
    double x = 0, y = 0;
    for (const int i : drawn) x += population[i][0], y += population[i][1];
    const auto n = static_cast<double>(drawn.size());
    return MeanGradient{(x * x + y * y) / (n * n), static_cast<std::int64_t>(drawn.size())};
  };
  const MeanGradient truth = mean_of({0, 1, 2});
  double variance = -truth.squares;
  for (const auto& [x, y] : population) variance += (x * x + y * y) / 3;
  for (const std::size_t small : {1, 2, 3}) {
    NoiseScale scale(100);
    for (int draw = 0; draw < 81; ++draw) {
      const std::vector<int> all = {draw % 3, draw / 3 % 3, draw / 9 % 3, draw / 27};
      scale.add(mean_of({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(small)}),
                mean_of(all));
    }
    EXPECT_NEAR(scale.value().value(), variance / truth.squares, 1e-13) << small;
  }
}

TEST(NoiseScale, ForgetsOldStepsAndLeavesOutWhatSaysNothing) {
  // Of one token and of two: |G|^2 = 2 large - small, S = 2 (small - large).
  NoiseScale scale(2);
  EXPECT_FALSE(scale.value());
  scale.add({3, 1}, {2, 2});
  EXPECT_DOUBLE_EQ(scale.value().value(), 2);
  scale.add({5, 1}, {4, 2});
  EXPECT_DOUBLE_EQ(scale.value().value(), 1);  // means 2 and 2
  scale.add({2, 1}, {2, 2});
  EXPECT_DOUBLE_EQ(scale.value().value(), 0.5);  // halfway to 0 and to 2
  scale.add({9, 0}, {1, 2});
  scale.add({9, 2}, {1, 2});
  scale.add({kInfinity, 1}, {1, 2});
  EXPECT_DOUBLE_EQ(scale.value().value(), 0.5);
  NoiseScale hidden(1);
  hidden.add({9, 1}, {1, 2});
  EXPECT_FALSE(hidden.value());
}

// Of a batch of `all` sequences a step the first `few`.
class FirstOfStep final : public data::TokenSource {
 public:
  FirstOfStep(const data::TokenSource& source, std::int64_t all, std::int64_t few)
      : source_(source), all_(all), few_(few) {}
  void read(std::int64_t sample, std::span<std::int64_t> tokens,
            std::span<std::int64_t> labels) const override {
    source_.read(sample / few_ * all_ + sample % few_, tokens, labels);
  }

 private:
  const data::TokenSource& source_;
  std::int64_t all_, few_;
};

spec::Spec noisy_spec() {
  spec::Spec spec = small_spec(false);
  spec.model.layers = 4;
  spec.batch.microbatch = 2;
  spec.train.noise_scale = 10;
  return spec;
}

// A model, what its steps must find, and from which state each starts.
class Expected {
 public:
  explicit Expected(spec::Spec spec) : spec_(std::move(spec)), tokens_(1, spec_.model.vocab, true) {
    spec_.layout.zero = 0;
    for (int step = 0; step < kNoisySteps; ++step) orders_.push_back({step, nullptr});
    images_ = run(make_job(spec_).value(), tokens_).images;
    for (std::size_t step = 1; step < kNoisySteps; ++step) orders_[step].from = &images_[step - 1];
    spec::Spec alone = spec_;  // the first microbatch of every step as a batch of its own
    alone.train.noise_scale = 0;
    alone.batch.global_batch = alone.batch.microbatch;
    const FirstOfStep first(tokens_, spec_.batch.global_batch, spec_.batch.microbatch);
    const verify::TrialResult trial = run(make_job(alone).value(), first);
    for (const verify::RankStep& step : trial.ranks[0].steps)
      small_.push_back({step.report.grad_norm * step.report.grad_norm, step.report.tokens});
  }

  verify::TrialResult run(const Job& job, const data::TokenSource& source) const {
    return verify::run_trial(job, source, orders_, Seconds{60});
  }

  // What one step finds may be off by `error` of itself; so the scale by what that makes of it.
  void check(const std::string& layout, double error) const {
    const Job job = job_of(spec_, layout);
    const verify::TrialResult trial = run(job, tokens_);
    for (const verify::RankRecord& rank : trial.ranks) {
      const verify::PredictionCheck predicted = verify::check_predictions(job, rank);
      EXPECT_EQ(predicted.mismatch, "") << layout;
      EXPECT_EQ(predicted.peak_error(), 0) << layout;
      double gradient = 0, variance = 0, gradient_off = 0, variance_off = 0;
      for (std::size_t i = 0; i < kNoisySteps; ++i) {
        const StepReport& report = rank.steps[i].report;
        EXPECT_EQ(report.first.tokens, small_[i].tokens) << layout;
        EXPECT_NEAR(report.first.squares, small_[i].squares, error * small_[i].squares) << layout;
        const double b = static_cast<double>(small_[i].tokens), s = small_[i].squares;
        const double all = static_cast<double>(report.tokens);
        const double l = images_[i].grad_norm * images_[i].grad_norm;
        gradient += (all * l - b * s) / (all - b);
        variance += (s - l) / (1 / b - 1 / all);
        gradient_off += error * (all * l + b * s) / (all - b);
        variance_off += error * (s + l) / (1 / b - 1 / all);
        ASSERT_GT(gradient, gradient_off) << layout;
        EXPECT_NEAR(report.noise_scale.value(), variance / gradient,
                    (variance_off + std::abs(variance / gradient) * gradient_off) /
                        (gradient - gradient_off))
            << layout;
      }
    }
  }

 private:
  spec::Spec spec_;
  data::MockTokens tokens_;
  std::vector<verify::StepOrder> orders_;
  std::vector<verify::StepImage> images_;
  std::vector<MeanGradient> small_;
};

// Bounds are twice those of a norm: `lockstep verify` holds it to 1e-12, on tensor ranks to 1e-10.
TEST(NoiseScale, IsThatOfOneRankInEveryLayout) {
  const Expected expected(noisy_spec());
  for (const char* layout :
       {"dp1 zero0 m8", "dp1 zero0 m8 mb recompute=full", "dp2 zero1 m4 mb", "dp4 zero0 m2",
        "dp8 zero3 m1", "dp2x2 zero3 m2", "pp2 dp1 zero0 1f1b m8", "pp2 dp2 zero2 zb-h1 m4 step",
        "pp2 dp1 zero3 zbv vpp2 m8", "cp2 dp1 zero0 m8", "cp4 pp2 dp1 zero3 zb-h1 m8",
        "cp2 dp2 zero2 m4 cp_comm_type=gather"})
    expected.check(layout, 2e-12);
  for (const char* layout :
       {"tp2 dp1 zero0 m8", "tp2 dp2 zero2 m4", "tp2 pp2 dp1 zero1 zb-h1 m8",
        "tp2 dp1 nosp zero0 m8", "tp2 pp2 dp2 nosp zero3 m4", "tp2 cp2 dp1 zero1 m8",
        "tp4 dp1 zero0 m8", "tp4 dp2 nosp zero2 m4", "tp4 cp2 dp1 nosp zero1 m8"})
    expected.check(layout, 2e-10);
}

// Gains that every head uses are partial without sequence parallelism too; a table of positions is
// a large part that is.
TEST(NoiseScale, AddsUpWhatTensorRanksHoldInPart) {
  spec::Spec gains = noisy_spec();
  gains.model.qk_norm = model::QkNorm::kPerHead;
  const Expected per_head(gains);
  for (const char* layout : {"tp2 dp1 zero0 m8", "tp2 dp2 nosp zero1 m4"})
    per_head.check(layout, 2e-10);
  spec::Spec learned = noisy_spec();
  learned.model.family = model::Family::kGpt2;
  learned.model.norm = model::NormKind::kLayerNorm;
  learned.model.qkv_bias = learned.model.linear_bias = true;
  learned.model.kv_heads = learned.model.heads;
  learned.model.max_positions = 512;
  const Expected positions(learned);
  for (const char* layout : {"tp2 dp2 zero0 m4", "tp2 dp2 zero3 nosp m4"})
    positions.check(layout, 2e-10);
}

std::string bits(const spec::Spec& spec, const char* layout) {
  const data::MockTokens tokens(1, spec.model.vocab, true);
  const verify::StepOrder orders[] = {{0, nullptr}, {1, nullptr}};
  return bits_of(verify::run_trial(job_of(spec, layout), tokens, orders, Seconds{60}).images);
}

TEST(NoiseScale, ChangesNoBitOfTraining) {
  spec::Spec without = noisy_spec();
  without.train.noise_scale = 0;
  for (const char* layout :
       {"dp2 zero3 m4", "tp2 dp1 zero0 m8", "tp2 pp2 dp1 zero1 zb-h1 m8", "tp2 cp2 dp1 zero1 m8"})
    EXPECT_EQ(bits(noisy_spec(), layout), bits(without, layout)) << layout;
}

TEST(NoiseScale, IsRefusedWhereItCanNotBeFound) {
  spec::Spec spec = noisy_spec();
  spec.model.tied = true;
  EXPECT_EQ(make_job(spec).error().code, Code::kNotRunYet);
  spec = noisy_spec();
  spec.batch.global_batch = 2;
  EXPECT_EQ(make_job(spec).error().code, Code::kConflict);
  spec.batch.global_batch = 16;
  spec.batch.ramp = {2, 2, 8};
  EXPECT_EQ(make_job(spec).error().code, Code::kConflict);
}

}  // namespace
}  // namespace lockstep::train
