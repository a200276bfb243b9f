#include "lockstep/audit/step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lockstep/base/check.h"

namespace lockstep::audit {
namespace {

// Half the distance from 1 to the next number.
double unit_of(DType dtype) {
  return dtype == DType::kF64 ? 0x1p-53 : dtype == DType::kF32 ? 0x1p-24 : 0x1p-8;
}

// Another implementation's distance to f64, over ours: both are roundings on the longest path of
// the same formula, but tensor ranks round a product that they cut once more (twice the distance),
// and other kernels round where ours do not (twice again).
constexpr double kLeeway = 4;

std::string span_of(const std::vector<std::int64_t>& wrong, std::int64_t all, const char* what) {
  if (std::ssize(wrong) == all) return join_parts("all ", all, " ", what);
  const bool in_a_row = wrong.back() - wrong.front() + 1 == std::ssize(wrong);
  if (wrong.size() == 1) return join_parts("1 of ", all, " ", what, ": ", wrong.front());
  return in_a_row ? join_parts(what, " ", wrong.front(), " to ", wrong.back(), " of ", all)
                  : join_parts(wrong.size(), " of ", all, " ", what, ", between ", wrong.front(),
                               " and ", wrong.back());
}

}  // namespace

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b, double factor) {
  LS_CHECK(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double apart = a[i] - factor * b[i];
    sum += apart * apart;
  }
  return std::sqrt(sum);
}

Bounds bounds_of(const Dump& dump, const Step& truth, const Step& own) {
  double apart = 0, whole = 0;
  std::vector<double> own_distances, norms;
  for (const Tensor& tensor : dump.gradients) {
    own_distances.push_back(
        distance(own.gradients.at(tensor.name), truth.gradients.at(tensor.name)));
    norms.push_back(norm_of(truth.gradients.at(tensor.name)));
    apart += own_distances.back() * own_distances.back();
    whole += norms.back() * norms.back();
  }
  // Sums over microbatches and ranks, which round as often as there are summands.
  const double sums = std::sqrt(1.0 + static_cast<double>(dump.samples.size()) + dump.ranks);
  Bounds bounds;
  bounds.typical = whole == 0 ? 0 : std::sqrt(apart / whole);
  double all = 0;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const double stored = unit_of(dump.gradients[i].stored) * sums * norms[i];
    bounds.gradients.push_back(kLeeway *
                               (std::max(own_distances[i], bounds.typical * norms[i]) + stored));
    all += bounds.gradients.back() * bounds.gradients.back();
  }
  bounds.typical = whole == 0 ? 0 : std::sqrt(all / whole);
  const double own_loss = std::abs(own.loss - truth.loss) / std::abs(truth.loss);
  bounds.loss = kLeeway * (own_loss + unit_of(dump.compute) / 4 + 2 * unit_of(DType::kF32));
  // Frameworks keep the norm of each tensor, and of those, in the gradients' type.
  const DType stored = std::ranges::min(dump.gradients, {}, [](const Tensor& tensor) {
                         return size_of(tensor.stored);
                       }).stored;
  bounds.grad_norm = kLeeway * (unit_of(stored) + 4 * unit_of(DType::kF32));
  return bounds;
}

double Compared::ratio() const {
  if (!std::isfinite(distance)) return std::numeric_limits<double>::infinity();
  if (distance == 0) return 0;
  return bound == 0 ? std::numeric_limits<double>::infinity() : distance / bound;
}

std::vector<Compared> compare(const Dump& dump, const Step& truth, const Bounds& bounds) {
  std::vector<Compared> all;
  for (std::size_t i = 0; i < dump.gradients.size(); ++i) {
    const std::vector<double>& wanted = truth.gradients.at(dump.gradients[i].name);
    all.push_back(
        {distance(dump.gradients[i].values, wanted), norm_of(wanted), bounds.gradients[i]});
  }
  return all;
}

HeadRows head_rows(const model::ModelConfig& model, const std::string& tensor) {
  for (const char* name : {"q_proj", "k_proj", "v_proj"})
    if (tensor.find(name) != std::string::npos) return {model.head_dim, 0};
  if (tensor.find("o_proj.weight") != std::string::npos) return {model.head_dim, 1};
  return {};
}

Whereabouts locate(const Dump& dump, const Tensor& tensor, const std::vector<double>& truth,
                   double bound) {
  const std::int64_t rows = tensor.shape.front();
  const std::int64_t columns = numel(tensor.shape) / std::max<std::int64_t>(rows, 1);
  // What one row may have of the tensor's bound, were it spread evenly; and twice that.
  const double limit = 2 * bound / std::sqrt(static_cast<double>(std::max<std::int64_t>(rows, 1)));
  std::vector<std::int64_t> wrong;
  std::vector<bool> is_wrong(tensor.values.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      sum += (tensor.values[i] - truth[i]) * (tensor.values[i] - truth[i]);
    if (std::sqrt(sum) <= limit) continue;
    wrong.push_back(row);
    const double most = std::sqrt(sum / static_cast<double>(columns));
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      is_wrong[i] = !(std::abs(tensor.values[i] - truth[i]) < most / 8);
  }
  Whereabouts found;
  if (wrong.empty()) return {.rows = join_parts("no single one of ", rows, " rows")};
  found.rows = span_of(wrong, rows, "rows");
  if (const HeadRows heads = head_rows(dump.model.config, tensor.name);
      heads.rows > 0 && heads.dim == 0 && std::ssize(wrong) < rows) {
    std::set<std::int64_t> in;
    for (const std::int64_t row : wrong) in.insert(row / heads.rows);
    found.rows += ", " + span_of({in.begin(), in.end()}, rows / heads.rows, "heads");
  }
  std::set<int> writers, ranks;
  for (const Owned& owned : tensor.owners) {
    writers.insert(owned.rank);
    std::int64_t hit = 0;
    for_each_run(tensor.shape, owned.region, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t i = first; i < first + count; ++i) hit += is_wrong[i];
    });
    if (hit * 8 > numel(owned.region)) ranks.insert(owned.rank);
  }
  found.ranks.assign(ranks.begin(), ranks.end());
  found.writers = static_cast<int>(writers.size());
  return found;
}

}  // namespace lockstep::audit
