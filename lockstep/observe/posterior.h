// What runs of one's own say of runs that were not made: ln(measured / predicted) as a Gaussian
// process. Its prior is what errors of published sources have in common:
//
//   a level that all runs of a source share,
//   a factor on each part of the step, felt as much as the part weighs,
//   what alike runs share, falling off with the distance of their traits (an exponential kernel),
//   noise of each run, with Student's tails: a run that the others contradict is discounted.
//
// No sampler and no random number: the same runs give the same bits. The largest system is as large
// as there are runs, and a Cholesky factor of it is all that is needed, so it is written out here
// rather than borrowed from a library that nothing else below the fence would use.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/observe/run_features.h"

namespace lockstep::observe {

// Standard deviations of logarithms; lengths in units of the traits.
struct Prior {
  double level = 0;
  std::array<double, kParts> parts = {};
  double likeness = 0;
  std::array<double, kTraits> lengths = {};
  double family_length = 1;  // of one family of devices to another
  double noise = 0;
  double freedom = 4;  // of Student's distribution
};
const Prior& time_prior();
const Prior& memory_prior();

struct Observation {
  RunFeatures features = {};
  double log_ratio = 0;  // ln(measured / predicted)
};

// Of ln(measured / predicted).
struct Belief {
  double mean = 0, deviation = 0;
  double p50() const;  // factors on the prediction
  double p95() const;  // one run in twenty is above
};

inline constexpr std::size_t kMostRuns = 512;

class Posterior {
 public:
  // REQUIRES: at most kMostRuns; the prior outlives this.
  Posterior(const Prior& prior, std::vector<Observation> runs);

  Belief of(const RunFeatures& features) const;

  // How far a run is taken at its word, from 1 down; below kContradicts the others say otherwise. A
  // lone run, and two, are believed.
  std::span<const double> trust() const { return trust_; }
  static constexpr double kContradicts = 0.4;

  // What was learned of the level, or of one part: its logarithm before and after.
  struct Learned {
    double before = 0;  // deviation; the mean was 0
    Belief now = {};
  };
  Learned level() const;
  Learned part(std::size_t index) const;

 private:
  double covariance(const RunFeatures& a, const RunFeatures& b) const;
  double fit();  // with `trust_` as it is; the logarithm of the likelihood
  void reweigh();
  Learned linear(double before, const std::vector<double>& weights) const;
  std::vector<double> forward(std::vector<double> values) const;

  const Prior* prior_;
  std::vector<Observation> runs_;
  std::vector<double> trust_;
  std::vector<double> factor_;  // Cholesky's, row by row
  std::vector<double> alpha_;   // covariance^-1 times the log ratios
};

}  // namespace lockstep::observe
