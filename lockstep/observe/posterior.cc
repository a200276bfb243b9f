#include "lockstep/observe/posterior.h"

#include <algorithm>
#include <cmath>
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
      .level = 0.15,
      .parts = {0.12, 0.2, 0.35, 0.8, 0.4, 0.8, 0.15, 0.5, 0.3},
      .likeness = 0.13,
      .lengths = {1.3, 2, 4, 2, 1.8, 4, 0.7, 1.2, 2, 0.5, 4.5, 1.6, 1},
      .noise = 0.045,
  };
  return prior;
}

const Prior& memory_prior() {
  static const Prior prior{
      .level = 0.1,
      .parts = {0.03, 0.1, 0.1, 0.1, 0.15, 0.15, 0.3, 0, 0},
      .likeness = 0.11,
      .lengths = {1.3, 2, 4, 2, 1.8, 4, 2, 1.2, 1, 0.5, 4.5, 4, 0.5},
      .noise = 0.045,
  };
  return prior;
}

double Belief::p50() const { return std::exp(mean); }
double Belief::p95() const { return std::exp(mean + kOneInTwenty * deviation); }

Posterior::Posterior(const Prior& prior, std::vector<Observation> runs)
    : prior_(&prior), runs_(std::move(runs)), trust_(runs_.size(), 1.0) {
  LS_CHECK(runs_.size() <= kMostRuns, "more runs than can be learned from: ", runs_.size());
  fit();
  if (runs_.size() > 2) reweigh();
}

double Posterior::covariance(const RunFeatures& a, const RunFeatures& b) const {
  double shared = squared(prior_->level);
  for (std::size_t i = 0; i < kParts; ++i)
    shared += squared(prior_->parts[i]) * a.shares[i] * b.shares[i];
  double distance = a.family == b.family ? 0 : 1 / squared(prior_->family_length);
  for (std::size_t i = 0; i < kTraits; ++i)
    distance += squared((a.traits[i] - b.traits[i]) / prior_->lengths[i]);
  return shared + squared(prior_->likeness) * std::exp(-std::sqrt(distance));
}

std::vector<double> Posterior::forward(std::vector<double> values) const {
  const std::size_t n = runs_.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) values[i] -= factor_[i * n + j] * values[j];
    values[i] /= factor_[i * n + i];
  }
  return values;
}

double Posterior::fit() {
  const std::size_t n = runs_.size();
  factor_.assign(n * n, 0);
  std::vector<double> ratios(n);
  for (std::size_t i = 0; i < n; ++i) {
    ratios[i] = runs_[i].log_ratio;
    for (std::size_t j = 0; j <= i; ++j) {
      double rest = covariance(runs_[i].features, runs_[j].features);
      if (i == j) rest += squared(prior_->noise) / trust_[i];
      for (std::size_t k = 0; k < j; ++k) rest -= factor_[i * n + k] * factor_[j * n + k];
      factor_[i * n + j] = i == j ? std::sqrt(rest) : rest / factor_[j * n + j];
    }
  }
  alpha_ = forward(ratios);
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) alpha_[i] -= factor_[j * n + i] * alpha_[j];
    alpha_[i] /= factor_[i * n + i];
  }
  // Of what is explained under the prior, and of what is left under Student's distribution.
  double likelihood = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double left = alpha_[i] * squared(prior_->noise) / trust_[i];
    likelihood -=
        0.5 * alpha_[i] * (ratios[i] - left) +
        0.5 * (prior_->freedom + 1) * std::log1p(squared(left / prior_->noise) / prior_->freedom);
  }
  return likelihood;
}

// Student's distribution is a normal one whose deviation is not known: each run's is taken at its
// mean, in turn with what it leaves unexplained, until both stand. Contradictions have two such
// points, so a second search begins where runs far from the middle one are doubted; the likelier
// stays.
void Posterior::reweigh() {
  const auto weight = [&](double left) {
    return std::min(1.0, (prior_->freedom + 1) / (prior_->freedom + squared(left / prior_->noise)));
  };
  const auto settle = [&] {
    double likelihood = 0;
    for (int turn = 0; turn < 30; ++turn) {
      likelihood = fit();
      double change = 0;
      for (std::size_t i = 0; i < runs_.size(); ++i) {
        const double next = weight(alpha_[i] * squared(prior_->noise) / trust_[i]);
        change = std::max(change, std::abs(next - std::exchange(trust_[i], next)));
      }
      if (change < 1e-4) break;
    }
    return std::max(likelihood, fit());
  };
  const double plain = settle();
  const std::vector<double> first = trust_;
  std::vector<double> ratios;
  for (const Observation& run : runs_) ratios.push_back(run.log_ratio);
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::ranges::nth_element(ratios, middle);
  for (std::size_t i = 0; i < runs_.size(); ++i) trust_[i] = weight(runs_[i].log_ratio - *middle);
  if (settle() > plain) return;
  trust_ = first;
  fit();
}

Belief Posterior::of(const RunFeatures& features) const {
  std::vector<double> shared;
  for (const Observation& run : runs_) shared.push_back(covariance(features, run.features));
  const double mean = inner(shared, alpha_);
  const std::vector<double> known = forward(std::move(shared));
  const double left = covariance(features, features) - inner(known, known);
  return {mean, std::sqrt(std::max(0.0, left) + squared(prior_->noise))};
}

Posterior::Learned Posterior::linear(double before, const std::vector<double>& weights) const {
  const double variance = squared(before);
  std::vector<double> shared = weights;
  for (double& one : shared) one *= variance;
  const double mean = inner(shared, alpha_);
  const std::vector<double> known = forward(std::move(shared));
  return {before, {mean, std::sqrt(std::max(0.0, variance - inner(known, known)))}};
}

Posterior::Learned Posterior::level() const {
  return linear(prior_->level, std::vector<double>(runs_.size(), 1.0));
}

Posterior::Learned Posterior::part(std::size_t index) const {
  std::vector<double> shares;
  for (const Observation& run : runs_) shares.push_back(run.features.shares[index]);
  return linear(prior_->parts[index], shares);
}

}  // namespace lockstep::observe
