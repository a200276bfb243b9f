// Selection biases follow the tokens that experts met in a step, all over the world, and balance
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/trial.h"
#include "tests/train/families.h"
#include "tests/train/hooked_workspace.h"
#include "tests/train/small.h"

namespace lockstep::train {
namespace {

std::vector<StepReport> reports_of(const Job& job, int steps,
                                   const verify::TrialOptions& options = {}) {
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  std::vector<verify::StepOrder> orders;
  for (int step = 0; step < steps; ++step) orders.push_back({step, nullptr});
  std::vector<StepReport> reports;
  const verify::TrialResult trial = verify::run_trial(job, tokens, orders, Seconds{60}, options);
  for (const verify::RankStep& step : trial.ranks[0].steps) reports.push_back(step.report);
  return reports;
}

// By definition.
std::vector<float> moved(std::vector<float> bias, const std::vector<std::int64_t>& tokens,
                         std::int64_t experts, double rate) {
  for (std::int64_t i = 0; i < std::ssize(bias); ++i) {
    const auto* const own = &tokens[static_cast<std::size_t>(i / experts * experts)];
    const double mean = static_cast<double>(std::accumulate(own, own + experts, std::int64_t{0})) /
                        static_cast<double>(experts);
    const auto met = static_cast<double>(tokens[static_cast<std::size_t>(i)]);
    float& b = bias[static_cast<std::size_t>(i)];
    if (met < mean) b = static_cast<float>(b + rate);
    if (met > mean) b = static_cast<float>(b - rate);
  }
  return bias;
}

TEST(SelectionBias, MovesByTheRateAgainstTheTokensOfTheWorld) {
  for (const char* layout : {"dp1 zero0", "tp2 etp2 pp2 dp2 zero1 m4", "dp4 ep4 zero3 m2"}) {
    SCOPED_TRACE(layout);
    const spec::Spec spec = dots1_spec();
    const std::int64_t experts = spec.model.moe.experts;
    std::vector<float> bias(static_cast<std::size_t>(spec.model.layers * experts));
    for (const StepReport& report : reports_of(job_of(spec, layout), 3)) {
      bias = moved(bias, report.expert_tokens, experts, spec.train.moe_bias_update_rate);
      EXPECT_EQ(report.router_bias, bias);
    }
    EXPECT_GT(std::ranges::max(bias), 0);
  }
}

// A step that changes nothing changes no bias either.
TEST(SelectionBias, StaysWhereAStepIsSkipped) {
  verify::TrialOptions options;
  options.wrap = [](exec::Workspace& inner, Rank) {
    Hooks hooks;
    hooks.sums = [](exec::StepSums& sums, exec::Workspace&) {
      sums.loss.add(std::numeric_limits<double>::quiet_NaN());
    };
    return std::make_unique<HookedWorkspace>(inner, std::move(hooks));
  };
  const StepReport report = reports_of(job_of(small_mixture(), "dp2 zero1"), 1, options)[0];
  EXPECT_FALSE(report.updated);
  EXPECT_EQ(report.router_bias, std::vector<float>(report.expert_tokens.size()));
}

// Of the busiest expert, over the mean.
double unevenness(const StepReport& report) {
  const auto most = static_cast<double>(std::ranges::max(report.expert_tokens));
  const auto all = static_cast<double>(
      std::accumulate(report.expert_tokens.begin(), report.expert_tokens.end(), std::int64_t{0}));
  return most * static_cast<double>(report.expert_tokens.size()) / all;
}

TEST(SelectionBias, BalancesWhatMeetsMoreThanItsShare) {
  spec::Spec spec = small_mixture();
  spec.train.moe_aux_loss_coeff = 0;
  spec.train.lr.peak = 1e-4;
  constexpr int kTrained = 60, kLast = 20;
  const auto mean_of_last = [&](double rate) {
    spec.train.moe_bias_update_rate = rate;
    const auto reports = reports_of(job_of(spec, "dp1 zero0"), kTrained);
    double sum = 0;
    for (int step = kTrained - kLast; step < kTrained; ++step)
      sum += unevenness(reports[static_cast<std::size_t>(step)]);
    return sum / kLast;
  };
  const double without = mean_of_last(0), with = mean_of_last(0.001);
  EXPECT_LT(with, 1.5);
  EXPECT_GT(without, 1.2 * with);
}

}  // namespace
}  // namespace lockstep::train
