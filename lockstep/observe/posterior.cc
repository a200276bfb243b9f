#include "lockstep/observe/posterior.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::observe {
namespace {

// Of a normal distribution: one value in twenty is so many deviations above the mean.
constexpr double kOneInTwenty = 1.645;

double squared(double value) { return value * value; }

double inner(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

// Found on published sources with k runs of each given and the others predicted, and rounded; times
// and deviations half or twice as large change the median by a few tenths of a percent
// (bench/backtest/README.md).
const Prior& time_prior() {
  static const Prior prior{
      .levels = {0.1, 0.4},
      .parts = {0.12, 0.2, 0.35, 0.8, 0.4, 0.8, 0.15, 0.5, 0.3},
      .likeness = 0.13,
      .lengths = {1.3, 2, 4, 2, 1.8, 4, 0.7, 1.2, 2, 0.5, 4.5, 1.6, 1},
      .noise = 0.045,
  };
  return prior;
}

const Prior& memory_prior() {
  static const Prior prior{
      .levels = {0.08, 0.3},
      .parts = {0.03, 0.1, 0.1, 0.1, 0.15, 0.15, 0.3, 0, 0},
      .likeness = 0.11,
      .lengths = {1.3, 2, 4, 2, 1.8, 4, 2, 1.2, 1, 0.5, 4.5, 4, 0.5},
      .noise = 0.045,
  };
  return prior;
}

double Belief::p50() const { return std::exp(mean); }
double Belief::p95() const { return std::exp(mean + kOneInTwenty * deviation); }
double Belief::above(double log_ratio) const {
  return 0.5 * std::erfc((log_ratio - mean) / deviation * std::numbers::sqrt2 / 2);
}

Posterior::Posterior(const Prior& prior, std::vector<Observation> runs)
    : prior_(&prior), runs_(std::move(runs)) {
  LS_CHECK(runs_.size() <= kMostRuns, "more runs than can be learned from: ", runs_.size());
  for (std::size_t i = 0; i < fits_.size(); ++i) {
    Fit& fit = fits_[i];
    fit.level = prior.levels[i];
    fit.trust.assign(runs_.size(), 1);
    solve(fit);
    if (runs_.size() > 2) reweigh(fit);
    fit.scatter = scatter_of(fit);
    fit.weight = std::log(i == 0 ? prior.near : 1 - prior.near) + fit.evidence(runs_);
  }
  const double odds = std::exp(fits_[1].weight - fits_[0].weight);
  fits_[0].weight = 1 / (1 + odds), fits_[1].weight = 1 - fits_[0].weight;
}

double Posterior::covariance(const Fit& fit, const RunFeatures& a, const RunFeatures& b) const {
  double shared = squared(fit.level);
  for (std::size_t i = 0; i < kParts; ++i)
    shared += squared(prior_->parts[i]) * a.shares[i] * b.shares[i];
  double distance = a.family == b.family ? 0 : 1 / squared(prior_->family_length);
  for (std::size_t i = 0; i < kTraits; ++i)
    distance += squared((a.traits[i] - b.traits[i]) / prior_->lengths[i]);
  return shared + squared(prior_->likeness) * std::exp(-std::sqrt(distance));
}

std::vector<double> Posterior::Fit::forward(std::vector<double> values) const {
  const std::size_t n = values.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) values[i] -= factor[i * n + j] * values[j];
    values[i] /= factor[i * n + i];
  }
  return values;
}

double Posterior::Fit::evidence(const std::vector<Observation>& runs) const {
  const std::size_t n = runs.size();
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum -= 0.5 * runs[i].log_ratio * alpha[i] + std::log(factor[i * n + i]);
  return sum;
}

double Posterior::solve(Fit& fit) const {
  const std::size_t n = runs_.size();
  std::vector<double>&factor = fit.factor, &alpha = fit.alpha;
  factor.assign(n * n, 0);
  alpha.clear();
  for (std::size_t i = 0; i < n; ++i) {
    alpha.push_back(runs_[i].log_ratio);
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = covariance(fit, runs_[i].features, runs_[j].features);
      if (i == j) rest += squared(prior_->noise) / fit.trust[i];
      for (std::size_t k = 0; k < j; ++k) rest -= factor[i * n + k] * factor[j * n + k];
      factor[i * n + j] = i == j ? std::sqrt(rest) : rest / factor[j * n + j];
    }
  }
  alpha = fit.forward(std::move(alpha));
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) alpha[i] -= factor[j * n + i] * alpha[j];
    alpha[i] /= factor[i * n + i];
  }
  // Of what is explained under the prior, and of what is left under Student's distribution.
  double likelihood = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double left = alpha[i] * squared(prior_->noise) / fit.trust[i];
    likelihood -=
        0.5 * alpha[i] * (runs_[i].log_ratio - left) +
        0.5 * (prior_->freedom + 1) * std::log1p(squared(left / prior_->noise) / prior_->freedom);
  }
  return likelihood;
}

// Student's distribution is a normal one whose deviation is not known: each run's is taken at its
// mean, in turn with what it leaves unexplained, until both stand. Contradictions have two such
// points, so a second search begins where runs far from the middle one are doubted; the likelier
// stays.
void Posterior::reweigh(Fit& fit) const {
  const auto weight = [&](double left) {
    return std::min(1.0, (prior_->freedom + 1) / (prior_->freedom + squared(left / prior_->noise)));
  };
  const auto settle = [&] {
    for (int turn = 0; turn < 30; ++turn) {
      solve(fit);
      double change = 0;
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        const double next = weight(fit.alpha[i] * squared(prior_->noise) / fit.trust[i]);
        change = std::max(change, std::abs(next - std::exchange(fit.trust[i], next)));
      }
      if (change < 1e-4) break;
    }
    return solve(fit);
  };
  const double plain = settle();
  const std::vector<double> first = fit.trust;
  std::vector<double> ratios;
  for (const Observation& run : runs_) ratios.push_back(run.log_ratio);
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::ranges::nth_element(ratios, middle);
  for (std::size_t i = 0; i < runs_.size(); ++i)
    fit.trust[i] = weight(runs_[i].log_ratio - *middle);
  if (settle() > plain) return;
  fit.trust = first;
  solve(fit);
}

// Deviations are those of published runs until there are runs to tell: an inverse gamma prior on
// their square, which is what makes Student's process of a Gaussian one. The level takes one run.
double Posterior::scatter_of(const Fit& fit) const {
  if (runs_.size() < 2) return 1;
  double sum = 0;
  for (std::size_t i = 0; i < runs_.size(); ++i) sum += runs_[i].log_ratio * fit.alpha[i];
  return std::sqrt((prior_->certainty + std::max(0.0, sum - 1)) /
                   (prior_->certainty + static_cast<double>(runs_.size() - 1)));
}

template <class One>
Belief Posterior::mixed(One one) const {
  double mean = 0, square = 0;
  for (const Fit& fit : fits_) {
    const Belief belief = one(fit);
    mean += fit.weight * belief.mean;
    square += fit.weight * (squared(belief.mean) + squared(fit.scatter * belief.deviation));
  }
  return {mean, std::sqrt(std::max(0.0, square - squared(mean)))};
}

Belief Posterior::of(const RunFeatures& features) const {
  return mixed([&](const Fit& fit) -> Belief {
    std::vector<double> shared;
    for (const Observation& run : runs_) shared.push_back(covariance(fit, features, run.features));
    const double mean = inner(shared, fit.alpha);
    const std::vector<double> known = fit.forward(std::move(shared));
    const double left = covariance(fit, features, features) - inner(known, known);
    return {mean, std::sqrt(std::max(0.0, left) + squared(prior_->noise))};
  });
}

double Posterior::trust(std::size_t run) const {
  return fits_[0].weight * fits_[0].trust[run] + fits_[1].weight * fits_[1].trust[run];
}

double Posterior::left(std::size_t run) const {
  double sum = 0;
  for (const Fit& fit : fits_)
    sum += fit.weight * fit.alpha[run] * squared(prior_->noise) / fit.trust[run];
  return sum;
}

bool Posterior::contradicts(std::size_t run) const {
  return std::abs(left(run)) > 3 * prior_->noise;
}

Belief Posterior::linear(const Fit& fit, double before, const std::vector<double>& weights) const {
  std::vector<double> shared = weights;
  for (double& one : shared) one *= squared(before);
  const double mean = inner(shared, fit.alpha);
  const std::vector<double> known = fit.forward(std::move(shared));
  return {mean, std::sqrt(std::max(0.0, squared(before) - inner(known, known)))};
}

Posterior::Learned Posterior::level() const {
  const std::vector<double> ones(runs_.size(), 1.0);
  const auto& [near, far] = prior_->levels;
  return {std::sqrt(prior_->near * squared(near) + (1 - prior_->near) * squared(far)),
          mixed([&](const Fit& fit) { return linear(fit, fit.level, ones); })};
}

Posterior::Learned Posterior::part(std::size_t index) const {
  std::vector<double> shares;
  for (const Observation& run : runs_) shares.push_back(run.features.shares[index]);
  const double before = prior_->parts[index];
  return {before, mixed([&](const Fit& fit) { return linear(fit, before, shares); })};
}

}  // namespace lockstep::observe
