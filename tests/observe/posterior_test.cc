#include "lockstep/observe/posterior.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep::observe {
namespace {

RunFeatures run_of(double hidden, double data = 0) {
  RunFeatures made;
  made.shares[0] = 1 - data, made.shares[5] = data;
  made.traits[1] = std::log(hidden);
  made.family = "hopper";
  return made;
}

// The covariance of the prior, written down again.
double covariance(const Prior& p, const RunFeatures& a, const RunFeatures& b) {
  double sum = p.levels[0] * p.levels[0], far = a.family == b.family ? 0 : 1;
  for (std::size_t i = 0; i < kParts; ++i)
    sum += p.parts[i] * p.parts[i] * a.shares[i] * b.shares[i];
  for (std::size_t i = 0; i < kTraits; ++i)
    far += std::pow((a.traits[i] - b.traits[i]) / p.lengths[i], 2);
  return sum + p.likeness * p.likeness * std::exp(-std::sqrt(far));
}

// Of one level alone.
Prior plain_prior() {
  Prior prior = time_prior();
  prior.levels[1] = prior.levels[0];
  return prior;
}

TEST(Posterior, KnowsThePriorWithoutRuns) {
  const Prior p = plain_prior();
  const Posterior none(p, {});
  const RunFeatures run = run_of(4096, 0.3);
  const Belief belief = none.of(run);
  EXPECT_EQ(belief.p50(), 1);
  const double variance = covariance(p, run, run) + p.noise * p.noise;
  EXPECT_NEAR(belief.deviation, std::sqrt(variance), 1e-12);
  EXPECT_NEAR(belief.p95(), std::exp(1.645 * std::sqrt(variance)), 1e-12);
}

// One and two runs in closed form: the inverse of a number and of a 2 x 2 matrix.
TEST(Posterior, IsConditionedOnOneRunAndOnTwo) {
  const Prior p = plain_prior();
  const RunFeatures a = run_of(4096), b = run_of(8192, 0.4), wanted = run_of(2048, 0.2);
  const double aa = covariance(p, a, a) + p.noise * p.noise, ab = covariance(p, a, b);
  const double bb = covariance(p, b, b) + p.noise * p.noise;
  const double wa = covariance(p, wanted, a), wb = covariance(p, wanted, b);
  const double own = covariance(p, wanted, wanted) + p.noise * p.noise;
  const Belief one = Posterior(p, {{a, 0.3}}).of(wanted);
  EXPECT_NEAR(one.mean, wa / aa * 0.3, 1e-12);
  EXPECT_NEAR(one.deviation, std::sqrt(own - wa * wa / aa), 1e-12);
  const double det = aa * bb - ab * ab;
  const Belief two = Posterior(p, {{a, 0.3}, {b, -0.1}}).of(wanted);
  EXPECT_NEAR(two.mean, (wa * (bb * 0.3 + ab * 0.1) + wb * (-ab * 0.3 - aa * 0.1)) / det, 1e-12);
  const double known = (wa * wa * bb - 2 * wa * wb * ab + wb * wb * aa) / det;
  // What two runs say of deviations: their own square, less the level's run, beside the prior's.
  const double square = (0.09 * bb + 2 * 0.03 * ab + 0.01 * aa) / det;
  const double scatter = (p.certainty + std::max(0.0, square - 1)) / (p.certainty + 1);
  EXPECT_NEAR(two.deviation, std::sqrt(scatter * (own - known)), 1e-12);
}

// Runs that agree narrow the band and runs that scatter widen it, but never to nothing: what
// published sources leave open is the prior's.
TEST(Posterior, LearnsHowMuchRunsScatter) {
  const auto deviation = [](double by) {
    std::vector<Observation> runs;
    for (const double sign : {1.0, -1.0, 1.0, -1.0})
      runs.push_back({run_of(1024 << runs.size()), 0.1 + sign * by});
    return Posterior(time_prior(), runs).of(run_of(32768, 0.2)).deviation;
  };
  Prior sure = time_prior();
  sure.certainty = 1e9;  // deviations that no run changes
  std::vector<Observation> alike;
  for (int i = 0; i < 4; ++i) alike.push_back({run_of(1024 << i), 0.1});
  const double before = Posterior(sure, alike).of(run_of(32768, 0.2)).deviation;
  EXPECT_LT(deviation(0.005), 0.95 * before);  // four that agree to 1 %
  EXPECT_GT(deviation(0.005), 0.7 * before);
  EXPECT_LT(deviation(0.005), deviation(0.05));
  EXPECT_GT(deviation(0.25), before);
}

// What was learned of the level and of parts adds up to the belief, but for what alike runs share.
TEST(Posterior, SaysWhatWasLearned) {
  Prior p = plain_prior();
  p.likeness = 0;
  const Posterior learned(p, {{run_of(4096), 0.2}, {run_of(4096, 0.5), 0.4}});
  const RunFeatures wanted = run_of(1024, 0.25);
  const double sum =
      learned.level().now.mean + 0.75 * learned.part(0).now.mean + 0.25 * learned.part(5).now.mean;
  EXPECT_NEAR(learned.of(wanted).mean, sum, 1e-12);
  EXPECT_EQ(learned.part(5).before, p.parts[5]);
  EXPECT_LT(learned.part(5).now.deviation, p.parts[5]);
  EXPECT_GT(learned.part(5).now.mean, 0.1);  // the run with more of it was slower
}

TEST(Posterior, DoubtsTheRunThatOthersContradict) {
  std::vector<Observation> runs;
  for (const double ratio : {0.10, 0.12, 0.09, 0.11, 1.1, 0.10})
    runs.push_back({run_of(4096), ratio});
  const Posterior learned(time_prior(), runs);
  for (std::size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(learned.contradicts(i), i == 4) << i;
  EXPECT_NEAR(learned.of(run_of(4096)).mean, 0.10, 0.03);
}

// A lone run is all there is, however far it lies from the prediction.
TEST(Posterior, BelievesALoneRun) {
  const Posterior learned(time_prior(), {{run_of(4096), 0.7}});
  EXPECT_EQ(learned.trust(0), 1);
  EXPECT_GT(learned.of(run_of(4096)).mean, 0.6);
}

// Two sources, two levels: which one it is follows from the runs by Bayes' rule.
TEST(Posterior, WeighsTheLevels) {
  Prior near = plain_prior(), far = near;
  far.levels = {time_prior().levels[1], time_prior().levels[1]};
  const RunFeatures run = run_of(4096);
  for (const double ratio : {0.05, 0.5}) {
    const auto variance = [&](const Prior& p) {
      return covariance(p, run, run) + p.noise * p.noise;
    };
    const auto likely = [&](const Prior& p) {
      return std::exp(-0.5 * ratio * ratio / variance(p)) / std::sqrt(variance(p));
    };
    const double a = near.near * likely(near), b = (1 - near.near) * likely(far);
    const double mean = (a * Posterior(near, {{run, ratio}}).of(run).mean +
                         b * Posterior(far, {{run, ratio}}).of(run).mean) /
                        (a + b);
    EXPECT_NEAR(Posterior(time_prior(), {{run, ratio}}).of(run).mean, mean, 1e-12);
  }
}

// Runs drawn from the prior itself: the intervals hold as often as they say.
TEST(Posterior, IntervalsHold) {
  const RandomStream stream(7, "observe");
  const Prior& p = time_prior();
  int below50 = 0, below95 = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto normal = [&](int i) {
      return stream.normal(static_cast<std::uint64_t>(trial * 8 + i));
    };
    const bool is_near = stream.uniform(static_cast<std::uint64_t>(trial * 8 + 7)) < p.near;
    const double level = p.levels[is_near ? 0 : 1] * normal(0), compute = p.parts[0] * normal(1);
    const double data = p.parts[5] * normal(2), alike = p.likeness * normal(3);
    const auto ratio = [&](double share, int i) {
      return level + (1 - share) * compute + share * data + alike + p.noise * normal(i);
    };
    const Posterior learned(
        p, {{run_of(4096, 0.1), ratio(0.1, 4)}, {run_of(4096, 0.4), ratio(0.4, 5)}});
    const Belief belief = learned.of(run_of(4096, 0.7));
    const double truth = ratio(0.7, 6);
    below50 += truth <= std::log(belief.p50());
    below95 += truth <= std::log(belief.p95());
  }
  EXPECT_NEAR(below50 / 2000.0, 0.5, 0.03);
  EXPECT_NEAR(below95 / 2000.0, 0.95, 0.015);
}

}  // namespace
}  // namespace lockstep::observe
