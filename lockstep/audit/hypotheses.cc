#include "lockstep/audit/hypotheses.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "lockstep/base/check.h"

namespace lockstep::audit {
namespace {

constexpr const char* kUneven = "a batch whose ranks and microbatches have uneven counts of labels";

// Weights of the mean gradients of samples.
using Weights = std::vector<double>;

class Maker {
 public:
  explicit Maker(const Evidence& evidence) : evidence_(evidence), dump_(evidence.dump) {
    for (const Sample& sample : dump_.samples) {
      const auto live = static_cast<double>(sample.live());
      live_.push_back(live);
      by_rank_[sample.data_rank] += live;
      by_microbatch_[{sample.data_rank, sample.microbatch}] += live;
      all_ += live;
    }
    for (const Sample& sample : dump_.samples)
      right_.push_back(static_cast<double>(sample.live()) / all_);
    add_step("", evidence_.truth);
  }

  std::vector<Hypothesis> take() && {
    if (!evidence_.samples.empty()) {
      measure();
      add_means();
      add_subsets();
    }
    for (const auto& [by, step] : evidence_.moved) add_moved(by, step);
    return std::move(made_);
  }

 private:
  void add_step(const std::string& what, const Step& step) {
    made_.push_back({what,
                     [&step, &dump = dump_](std::size_t i) {
                       return step.gradients.at(dump.gradients[i].name);
                     },
                     [](std::size_t) { return 1.0; }});
  }

  // Norms of what samples bring, by tensor.
  void measure() {
    for (const Tensor& tensor : dump_.gradients) {
      norms_->emplace_back();
      for (const Step& sample : evidence_.samples)
        norms_->back().push_back(norm_of(sample.gradients.at(tensor.name)));
    }
  }

  void add(const std::string& what, const Weights& weights, const std::string& apart = "") {
    double cross = 0, own = 0, right = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      cross += weights[i] * right_[i];
      own += weights[i] * weights[i];
      right += right_[i] * right_[i];
    }
    if (own == 0 || cross * cross >= own * right * (1 - 1e-12)) return;  // as the truth is
    const auto noise = [norms = norms_, right = right_, weights](std::size_t tensor) {
      double above = 0, below = 0;
      for (std::size_t i = 0; i < weights.size(); ++i) {
        above += std::pow(weights[i] * (*norms)[tensor][i], 2);
        below += std::pow(right[i] * (*norms)[tensor][i], 2);
      }
      return below == 0 ? 1.0 : std::sqrt(above / below);
    };
    const auto gradient = [&evidence = evidence_, weights](std::size_t tensor) {
      const Tensor& of = evidence.dump.gradients[tensor];
      std::vector<double> sum(of.values.size());
      for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] == 0) continue;
        const std::vector<double>& from = evidence.samples[i].gradients.at(of.name);
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += weights[i] * from[j];
      }
      return sum;
    };
    made_.push_back({what, gradient, noise, apart});
  }

  template <class WeightOf>
  Weights each(const WeightOf& weight_of) const {
    Weights weights;
    for (std::size_t i = 0; i < live_.size(); ++i)
      weights.push_back(live_[i] == 0 ? 0.0 : weight_of(dump_.samples[i], live_[i]));
    return weights;
  }

  void add_means() {
    const auto samples = static_cast<double>(dump_.samples.size());
    const auto micro = static_cast<double>(by_microbatch_.size());
    const auto ranks = static_cast<double>(by_rank_.size());
    add("the mean of the means of microbatches, in place of the mean over all labels",
        each([&](const Sample& sample, double live) {
          return live / (micro * by_microbatch_.at({sample.data_rank, sample.microbatch}));
        }),
        kUneven);
    add("the mean of the means of data ranks, in place of the mean over all labels",
        each([&](const Sample& sample, double live) {
          return live / (ranks * by_rank_.at(sample.data_rank));
        }),
        kUneven);
    add("the mean of the means of samples, in place of the mean over all labels",
        each([&](const Sample&, double) { return 1 / samples; }), kUneven);
  }

  template <class Keeps>
  void add_part(const std::string& what, const Keeps& keeps) {
    const Weights weights =
        each([&](const Sample& sample, double live) { return keeps(sample) ? live / all_ : 0.0; });
    if (parts_.insert(weights).second) add(what, weights);  // else it is told in other words
  }

  void add_subsets() {
    std::map<int, int> last;
    for (const Sample& sample : dump_.samples)
      last[sample.data_rank] = std::max(last[sample.data_rank], sample.microbatch);
    add_part("only the last microbatch of every data rank",
             [&](const Sample& s) { return s.microbatch == last[s.data_rank]; });
    add_part("without the last microbatch of every data rank",
             [&](const Sample& s) { return s.microbatch != last[s.data_rank]; });
    for (const auto& one : by_rank_) {
      const int rank = one.first;
      add_part(join_parts("only data rank ", rank),
               [&](const Sample& s) { return s.data_rank == rank; });
      add_part(join_parts("only the last microbatch of data rank ", rank),
               [&](const Sample& s) { return s.data_rank == rank && s.microbatch == last[rank]; });
    }
    for (const auto& one : by_rank_) {
      const int rank = one.first;
      add_part(join_parts("without data rank ", rank),
               [&](const Sample& s) { return s.data_rank != rank; });
    }
    const int most = dump_.microbatches();
    for (int k = 0; k < most && most <= 32; ++k) {
      if (k != most - 1)
        add_part(join_parts("without microbatch ", k, " of every data rank"),
                 [&](const Sample& s) { return s.microbatch != k; });
      if (k != most - 1)
        add_part(join_parts("only microbatch ", k, " of every data rank"),
                 [&](const Sample& s) { return s.microbatch == k; });
    }
    if (by_rank_.size() == 1 || by_microbatch_.size() > 32) return;
    for (const auto& one : by_microbatch_) {
      const std::pair<int, int> place = one.first;
      add_part(join_parts("without microbatch ", place.second, " of data rank ", place.first),
               [&](const Sample& s) { return std::pair(s.data_rank, s.microbatch) != place; });
    }
  }

  void add_moved(int by, const Step& step) {
    const std::string what =
        join_parts("labels one token too far to the ", by > 0 ? "left" : "right",
                   by > 0 ? " (shifted twice)" : " (not shifted)");
    add_step(what, step);
  }

  const Evidence& evidence_;
  const Dump& dump_;
  Weights live_, right_;
  std::map<int, double> by_rank_;
  std::map<std::pair<int, int>, double> by_microbatch_;
  double all_ = 0;
  std::set<Weights> parts_;
  std::shared_ptr<std::vector<std::vector<double>>> norms_ =
      std::make_shared<std::vector<std::vector<double>>>();
  std::vector<Hypothesis> made_;
};

}  // namespace

std::vector<Hypothesis> hypotheses(const Evidence& evidence) { return Maker(evidence).take(); }

}  // namespace lockstep::audit
