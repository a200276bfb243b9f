#include "lockstep/audit/one_tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "lockstep/audit/factors.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"

namespace lockstep::audit {
namespace {

using Values = std::vector<double>;

double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Values taken(const Values& from, const Shape& shape, const Region& region) {
  Values values;
  for_each_run(shape, region, [&](std::int64_t first, std::int64_t count) {
    values.insert(values.end(), from.begin() + first, from.begin() + first + count);
  });
  return values;
}

class Finder {
 public:
  Finder(const Evidence& evidence, std::size_t index, const Values& wanted, double bound)
      : evidence_(evidence),
        dump_(evidence.dump),
        tensor_(dump_.gradients[index]),
        wanted_(wanted),
        bound_(bound),
        reference_(norm_of(wanted)) {}

  std::vector<TensorFault> take() && {
    if (norm_of(tensor_.values) == 0) {
      add("gradient is zero", 0, 0);
      return std::move(found_);
    }
    try_shares();
    try_ends();
    try_transposed();
    try_shards();
    if (found_.empty()) try_heads();  // pieces of heads that changed places are told as pieces
    try_other_tensors();
    try_factor();
    std::ranges::stable_sort(found_, {}, &TensorFault::fitted);
    return std::move(found_);
  }

 private:
  void add(const std::string& what, int fitted, double distance) {
    found_.push_back({what, fitted, distance});
  }
  // `size` is the hypothesis's own norm: what is small rounds little.
  bool fits(double apart, double size) const {
    return apart <= bound_ * std::max(reference_ == 0 ? 1 : size / reference_, 1e-3);
  }
  void try_values(const std::string& what, const Values& values) {
    const double apart = distance(tensor_.values, values);
    if (fits(apart, norm_of(values))) add(what, 0, apart);
  }

  void try_shares() {
    for (std::size_t rank = 0; rank < evidence_.shares.size(); ++rank) {
      const auto found = evidence_.shares[rank].find(tensor_.name);
      if (found == evidence_.shares[rank].end()) continue;
      try_values(join_parts("not summed over the ", evidence_.shares.size(),
                            " sequence-parallel ranks: the share of rank ", rank, " alone"),
                 found->second);
      Values averaged = wanted_;
      for (double& value : averaged) value /= static_cast<double>(evidence_.shares.size());
      if (rank == 0)
        try_values(join_parts("averaged over the ", evidence_.shares.size(),
                              " tensor-parallel ranks, not summed"),
                   averaged);
    }
  }

  void try_ends() {
    if (!evidence_.ends) return;
    const std::string& embedding = dump_.gradients.front().name;
    if (tensor_.name != embedding && tensor_.name != "lm_head.weight") return;
    try_values("only the embedding's end of the tied weight",
               evidence_.ends->gradients.at(embedding));
    try_values("only the head's end of the tied weight",
               evidence_.ends->gradients.at("lm_head.weight"));
  }

  void try_transposed() {
    if (tensor_.shape.size() != 2) return;
    const std::int64_t rows = tensor_.shape[0], columns = tensor_.shape[1];
    Values turned(wanted_.size());
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) turned[j * rows + i] = wanted_[i * columns + j];
    try_values(rows == columns ? "transposed" : "transposed, its elements in the other's order",
               turned);
  }

  // Each piece is right, zero, or what another rank should have.
  void try_shards() {
    if (tensor_.owners.size() < 2) return;
    std::string what;
    double left = 0;
    int wrong = 0;
    for (const Owned& owned : tensor_.owners) {
      const Values mine = taken(tensor_.values, tensor_.shape, owned.region);
      double apart = distance(mine, taken(wanted_, tensor_.shape, owned.region));
      if (apart > bound_) {
        ++wrong;
        const std::optional<std::string> known = shard_fault(owned, mine, apart);
        if (!known) return;
        if (wrong <= 2) what += (what.empty() ? "" : "; ") + *known;
      }
      left = std::hypot(left, apart);
    }
    if (wrong > 2) what += join_parts("; ", wrong - 2, " more pieces alike");
    if (wrong > 0) add(what, 0, left);
  }
  std::optional<std::string> shard_fault(const Owned& owned, const Values& mine,
                                         double& apart) const {
    if (norm_of(mine) == 0) {
      apart = 0;
      return join_parts("the piece of rank ", owned.rank, " is zero");
    }
    for (const Owned& other : tensor_.owners) {
      if (numel(other.region) != std::ssize(mine) || other.rank == owned.rank) continue;
      apart = distance(mine, taken(wanted_, tensor_.shape, other.region));
      if (apart <= bound_)
        return join_parts("the piece of rank ", owned.rank, " is what rank ", other.rank,
                          " should have");
    }
    return std::nullopt;
  }

  // Blocks of rows, or of columns, in another order.
  void try_heads() {
    const HeadRows heads = head_rows(dump_.model.config, tensor_.name);
    if (heads.rows == 0 || tensor_.shape.empty()) return;
    const auto block_of = [&](const Values& values, std::int64_t head) {
      Region region = {Shape(tensor_.shape.size(), 0), tensor_.shape};
      region.offset[heads.dim] = head * heads.rows;
      region.extent[heads.dim] = heads.rows;
      return taken(values, tensor_.shape, region);
    };
    const std::int64_t count = tensor_.shape[heads.dim] / heads.rows;
    double left = 0;
    std::string order;
    bool is_other = false;
    std::vector<bool> used(static_cast<std::size_t>(count));
    for (std::int64_t head = 0; head < count; ++head) {
      const Values mine = block_of(tensor_.values, head);
      double best = std::numeric_limits<double>::infinity();
      std::int64_t from = -1;
      for (std::int64_t other = 0; other < count; ++other) {
        if (used[other]) continue;
        const double apart = distance(mine, block_of(wanted_, other));
        if (apart < best) best = apart, from = other;
      }
      used[from] = true;
      is_other = is_other || from != head;
      order += join_parts(order.empty() ? "" : " ", from);
      left = std::hypot(left, best);
    }
    if (is_other && left <= bound_) add("heads in another order: " + order, 0, left);
  }

  void try_other_tensors() {
    for (const Tensor& other : dump_.gradients)
      if (other.name != tensor_.name && other.shape == tensor_.shape)
        try_values("the gradient of " + other.name, evidence_.truth.gradients.at(other.name));
  }

  void try_factor() {
    const double squares = dot(wanted_, wanted_);
    if (squares == 0) return;
    const double factor = dot(tensor_.values, wanted_) / squares;
    const double apart = distance(tensor_.values, wanted_, factor);
    if (!fits(apart, std::abs(factor) * reference_)) return;
    const double tolerance = bound_ / reference_;
    const auto names = names_of(dump_, factor, tolerance);
    add(in_words(names.empty() ? factor : names.front().value, names), names.empty() ? 1 : 0,
        apart);
  }

  const Evidence& evidence_;
  const Dump& dump_;
  const Tensor& tensor_;
  const Values& wanted_;
  const double bound_, reference_;
  std::vector<TensorFault> found_;
};

}  // namespace

std::vector<TensorFault> faults_of(const Evidence& evidence, std::size_t tensor,
                                   const Values& wanted, double bound) {
  return Finder(evidence, tensor, wanted, bound).take();
}

}  // namespace lockstep::audit
