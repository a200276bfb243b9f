#include "lockstep/audit/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "lockstep/audit/factors.h"
#include "lockstep/audit/hypotheses.h"
#include "lockstep/audit/one_tensor.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::audit {
namespace {

constexpr std::size_t kMostTold = 4;

// A hypothesis beside the dump.
struct Fit {
  std::vector<std::vector<double>> gradient;  // of each tensor
  std::vector<double> bounds;                 // of each, for the hypothesis
  double factor = 0;                          // that fits best
};

class Explainer {
 public:
  explicit Explainer(const Evidence& evidence)
      : evidence_(evidence), tensors_(evidence.dump.gradients) {
    for (const Tensor& tensor : tensors_) size_ = std::hypot(size_, norm_of(tensor.values));
  }

  std::vector<Explanation> run() && {
    const std::vector<Hypothesis> all = hypotheses(evidence_);
    for (std::size_t i = 0; i < all.size(); ++i) try_out(all[i], i == 0);
    const auto rank = [](const Explanation& e) { return std::pair(e.fitted, e.parts); };
    std::ranges::stable_sort(found_, {}, rank);
    if (found_.empty()) return {};
    const auto first = rank(found_.front());
    std::erase_if(found_, [&](const Explanation& e) { return rank(e) != first; });
    if (found_.size() > kMostTold) found_.resize(kMostTold);
    return std::move(found_);
  }

 private:
  Fit fit(const Hypothesis& hypothesis) const {
    Fit made;
    double cross = 0, own = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      made.gradient.push_back(hypothesis.gradient(i));
      made.bounds.push_back(evidence_.bounds.gradients[i] * hypothesis.noise(i));
      const std::vector<double>&g = tensors_[i].values, &h = made.gradient.back();
      cross += std::inner_product(g.begin(), g.end(), h.begin(), 0.0);
      own += std::inner_product(h.begin(), h.end(), h.begin(), 0.0);
    }
    made.factor = own == 0 ? 0 : cross / own;
    return made;
  }

  // Tensors that `factor` times the hypothesis does not explain; `residual` gets the distance.
  std::vector<std::size_t> unexplained(const Fit& fit, double factor, double& residual) const {
    std::vector<std::size_t> wrong;
    double left = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const double apart = distance(tensors_[i].values, fit.gradient[i], factor);
      if (!(apart <= std::abs(factor) * fit.bounds[i])) wrong.push_back(i);
      left = std::hypot(left, apart);
    }
    residual = size_ == 0 ? left : left / size_;
    return wrong;
  }

  void try_out(const Hypothesis& hypothesis, bool is_truth) {
    const Fit made = fit(hypothesis);
    double residual = 0;
    const auto plain = unexplained(made, 1, residual);
    if (plain.empty() && !is_truth)
      found_.push_back({hypothesis.what, 0, 1, residual, hypothesis.apart});
    if (plain.empty()) return;
    if (!try_factor(hypothesis, made, is_truth)) try_tensors(hypothesis, made, plain, is_truth);
  }

  bool try_factor(const Hypothesis& hypothesis, const Fit& made, bool is_truth) {
    double residual = 0;
    if (made.factor == 0 || !unexplained(made, made.factor, residual).empty()) return false;
    const std::string base =
        is_truth ? "every gradient is right but for a constant factor, " : hypothesis.what + ", ";
    const auto names = names_of(evidence_.dump, made.factor, evidence_.bounds.typical);
    const std::string clip = is_truth ? clipped_to() : "";
    std::string what =
        base + audit::in_words(names.empty() ? made.factor : names.front().value, names);
    if (!clip.empty() && names.empty())
      what = join_parts("gradients were clipped to a norm of ", clip, " before the dump");
    std::string apart = hypothesis.apart;
    if (names.size() > 1) apart = "a layout or batch in which these numbers differ";
    const bool is_known = !names.empty() || !clip.empty();
    found_.push_back({what, is_known ? 0 : 1, is_truth ? 1 : 2, residual, apart});
    return true;
  }

  // The norm of the dump's gradients where it is a number that a person would have set.
  std::string clipped_to() const {
    if (!(size_ > 0) || size_ >= evidence_.truth.grad_norm) return "";
    const double scale = std::pow(10, std::floor(std::log10(size_)) - 1);
    const double round = std::round(size_ / scale) * scale;
    const double tolerance = std::min(1e-3, evidence_.bounds.typical + 1e-5);
    return std::abs(size_ / round - 1) <= tolerance ? strf("%g", round) : "";
  }

  // All but some tensors are as the hypothesis has them, and these have faults of their own.
  void try_tensors(const Hypothesis& hypothesis, const Fit& made,
                   const std::vector<std::size_t>& wrong, bool is_truth) {
    if (!is_truth && wrong.size() * 2 > tensors_.size()) return;
    std::map<std::string, std::vector<std::size_t>> by_fault;
    std::map<std::string, int> fitted;
    for (const std::size_t i : wrong) {
      const auto faults = faults_of(evidence_, i, made.gradient[i], made.bounds[i]);
      if (faults.empty()) return;
      for (const TensorFault& fault : faults) {
        by_fault[fault.what].push_back(i);
        fitted[fault.what] = fault.fitted;
      }
    }
    Explanation explained = {is_truth ? "" : hypothesis.what, 0, is_truth ? 0 : 1, 0, ""};
    double residual = 0;
    for (std::vector<std::size_t> left = wrong; !left.empty(); ++explained.parts) {
      const auto most = std::ranges::max_element(by_fault, {}, [&](const auto& fault) {
        return std::pair(-fitted[fault.first], fault.second.size());
      });
      const std::string& text = explained.what;
      if (explained.parts < 4)
        explained.what =
            join_parts(text, text.empty() ? "" : "; ", in_words(most->second), ": ", most->first);
      explained.fitted += fitted[most->first];
      const std::vector<std::size_t> done = most->second;
      std::erase_if(left, [&](std::size_t i) { return std::ranges::count(done, i) > 0; });
      by_fault.erase(most);
      for (auto& [fault, those] : by_fault)
        std::erase_if(those, [&](std::size_t i) { return std::ranges::count(done, i) > 0; });
      std::erase_if(by_fault, [](const auto& fault) { return fault.second.empty(); });
    }
    unexplained(made, 1, residual);
    explained.residual = residual_without(made, wrong);
    found_.push_back(std::move(explained));
  }
  double residual_without(const Fit& made, const std::vector<std::size_t>& wrong) const {
    double left = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (std::ranges::count(wrong, i) == 0)
        left = std::hypot(left, distance(tensors_[i].values, made.gradient[i]));
    return size_ == 0 ? left : left / size_;
  }

  std::string in_words(const std::vector<std::size_t>& those) const {
    if (those.size() == tensors_.size()) return "all gradients";
    const std::string& first = tensors_[those.front()].name;
    if (those.size() == 1) return first;
    const bool are_norms = std::ranges::all_of(
        those, [&](std::size_t i) { return tensors_[i].name.find("norm") != std::string::npos; });
    return join_parts(those.size(), are_norms ? " weights of norms (" : " tensors (", first,
                      ", ...)");
  }
  const Evidence& evidence_;
  const std::vector<Tensor>& tensors_;
  double size_ = 0;
  std::vector<Explanation> found_;
};

struct Guess {
  std::string what;
  double value = 0;
};

std::vector<Explanation> among(const std::vector<Guess>& guesses, double said, double bound) {
  std::vector<Explanation> found;
  for (const Guess& guess : guesses)
    if (guess.value != 0 && std::abs(said / guess.value - 1) <= bound)
      found.push_back({guess.what, 0, 1, std::abs(said / guess.value - 1)});
  if (found.size() > kMostTold) found.resize(kMostTold);
  return found;
}

void add_factor(const Evidence& evidence, double said, double right, double bound,
                std::vector<Explanation>& found) {
  const auto names = names_of(evidence.dump, said / right, bound);
  if (found.empty() && !names.empty())
    found.push_back({in_words(names.front().value, names), 0, 1,
                     std::abs(said / right / names.front().value - 1)});
}

}  // namespace

std::vector<Explanation> explain(const Evidence& evidence) { return Explainer(evidence).run(); }

std::vector<Explanation> explain_loss(const Evidence& evidence, double said) {
  const std::vector<Sample>& samples = evidence.dump.samples;
  std::map<int, std::pair<double, double>> ranks;
  std::map<std::pair<int, int>, std::pair<double, double>> micro;
  double means = 0;
  for (std::size_t i = 0; i < evidence.samples.size(); ++i) {
    const auto live = static_cast<double>(samples[i].live());
    const double sum = evidence.samples[i].loss * live;
    means += evidence.samples[i].loss / static_cast<double>(samples.size());
    for (auto* into :
         {&ranks[samples[i].data_rank], &micro[{samples[i].data_rank, samples[i].microbatch}]})
      into->first += sum, into->second += live;
  }
  std::vector<Guess> guesses;
  const auto mean_of = [](const auto& groups) {
    double sum = 0;
    for (const auto& [unused, group] : groups)
      sum += group.second == 0 ? 0 : group.first / group.second;
    return sum / static_cast<double>(groups.size());
  };
  if (!evidence.samples.empty()) {
    guesses.push_back({"the mean of the means of microbatches", mean_of(micro)});
    guesses.push_back({"the mean of the means of data ranks", mean_of(ranks)});
    guesses.push_back({"the mean of the means of samples", means});
    for (const auto& [rank, group] : ranks)
      guesses.push_back(
          {join_parts("that of data rank ", rank, " alone"), group.first / group.second});
    const auto& last = micro.rbegin()->second;
    guesses.push_back({"that of the last microbatch alone", last.first / last.second});
  }
  for (const auto& [by, step] : evidence.moved)
    guesses.push_back(
        {join_parts("that of labels one token too far to the ", by > 0 ? "left" : "right"),
         step.loss});
  auto found = among(guesses, said, evidence.bounds.loss);
  add_factor(evidence, said, evidence.truth.loss, evidence.bounds.loss, found);
  return found;
}

std::vector<Explanation> explain_norm(const Evidence& evidence, double said) {
  std::map<int, double> by_rank;
  double all = 0, copied = 0, whole = 0, vectors = 0;
  for (const Tensor& tensor : evidence.dump.gradients) {
    const double squares = std::pow(norm_of(tensor.values), 2);
    all += squares;
    if (tensor.shape.size() == 1) vectors += squares;
    (tensor.owners.size() < 2 ? copied : whole) += squares;
    for (const Owned& owned : tensor.owners)
      for_each_run(tensor.shape, owned.region, [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i)
          by_rank[owned.rank] += tensor.values[i] * tensor.values[i];
      });
  }
  std::vector<Guess> guesses;
  for (const auto& [rank, squares] : by_rank)
    guesses.push_back(
        {join_parts("that of the pieces of rank ", rank, " alone"), std::sqrt(squares)});
  const auto tp = static_cast<double>(evidence.dump.degree("tp"));
  guesses.push_back({"tensors that tensor ranks hold whole are counted once by each of them",
                     std::sqrt(all + (tp - 1) * copied)});
  guesses.push_back({"weights of norms and biases are counted once by each tensor rank",
                     std::sqrt(all + (tp - 1) * vectors)});
  guesses.push_back({"tensors that tensor ranks hold whole are not counted", std::sqrt(whole)});
  guesses.push_back({"the square of the norm", all});
  const double first = norm_of(evidence.dump.gradients.front().values);
  guesses.push_back({"the embedding is counted twice", std::sqrt(all + first * first)});
  auto found = among(guesses, said, evidence.bounds.grad_norm);
  for (const double root : {static_cast<double>(evidence.dump.ranks), tp})
    if (found.empty() && root > 1 &&
        std::abs(said / std::sqrt(all * root) - 1) <= evidence.bounds.grad_norm)
      found.push_back({join_parts("every tensor is counted ", root, " times"), 0, 1, 0});
  add_factor(evidence, said, std::sqrt(all), evidence.bounds.grad_norm, found);
  return found;
}

}  // namespace lockstep::audit
