// What runs of one's own say of runs that were not made: ln(measured / predicted) as a Gaussian
// process. Its prior is what errors of published sources have in common:
//
//   a level that all runs of a source share: of one of two deviations, as most sources are near
//   and some far off,
//   a factor on each part of the step, felt as much as the part weighs,
//   what alike runs share, falling off with the distance of their traits (an exponential kernel),
//   noise of each run, with Student's tails: a run that the others contradict is discounted.
//
// Runs that agree better or worse with all of it than published ones did narrow or widen it.
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
  std::array<double, 2> levels = {};  // of a source that is near, and of one that may be far off
  double near = 0.6;                  // how likely the first is
  std::array<double, kParts> parts = {};
  double likeness = 0;
  std::array<double, kTraits> lengths = {};
  double family_length = 1;  // of one family of devices to another
  double noise = 0;
  double freedom = 4;    // of Student's distribution
  double certainty = 8;  // of all these deviations: so many runs are needed to say as much of them
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
  double p50() const;                    // factors on the prediction
  double p95() const;                    // one run in twenty is above
  double above(double log_ratio) const;  // how likely a run is
};

inline constexpr std::size_t kMostRuns = 512;

class Posterior {
 public:
  // REQUIRES: at most kMostRuns; the prior outlives this.
  Posterior(const Prior& prior, std::vector<Observation> runs);

  Belief of(const RunFeatures& features) const;

  // How far a run is taken at its word, from 1 down. A lone run, and two, are believed.
  double trust(std::size_t run) const;
  double left(std::size_t run) const;  // of its log_ratio, what is not explained
  // Whether that is more than noise: the others say otherwise.
  bool contradicts(std::size_t run) const;

  // What was learned of the level, or of one part: its logarithm before and after.
  struct Learned {
    double before = 0;  // deviation; the mean was 0
    Belief now = {};
  };
  Learned level() const;
  Learned part(std::size_t index) const;

 private:
  // With one of the two levels.
  struct Fit {
    double level = 0;
    double weight = 0;   // how likely this one is, given the runs
    double scatter = 1;  // of the runs, over what the prior expects: a factor on deviations
    std::vector<double> trust = {};
    std::vector<double> factor = {};  // Cholesky's, row by row
    std::vector<double> alpha = {};   // covariance^-1 times the log ratios

    std::vector<double> forward(std::vector<double> values) const;
    double evidence(const std::vector<Observation>& runs) const;  // a logarithm
  };
  double covariance(const Fit& fit, const RunFeatures& a, const RunFeatures& b) const;
  double solve(Fit& fit) const;  // with its trust as it is; the logarithm of the likelihood
  void reweigh(Fit& fit) const;
  double scatter_of(const Fit& fit) const;
  template <class One>
  Belief mixed(One one) const;  // of the two, as likely as they are
  Belief linear(const Fit& fit, double before, const std::vector<double>& weights) const;

  const Prior* prior_;
  std::vector<Observation> runs_;
  std::array<Fit, 2> fits_;
};

}  // namespace lockstep::observe
