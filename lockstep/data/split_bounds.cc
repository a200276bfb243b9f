#include "lockstep/data/split_bounds.h"

#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

// numpy's pairwise summation: halves, of which those of at most 128 are taken in eight strands.
double numpy_sum(std::span<const double> x) {
  constexpr std::size_t kStrands = 8, kBlock = 128;
  if (x.size() < kStrands) {
    double sum = 0;
    for (const double value : x) sum += value;
    return sum;
  }
  if (x.size() > kBlock) {
    const std::size_t half = x.size() / 2 / kStrands * kStrands;
    return numpy_sum(x.first(half)) + numpy_sum(x.subspan(half));
  }
  std::array<double, kStrands> r;
  for (std::size_t i = 0; i < kStrands; ++i) r[i] = x[i];
  std::size_t i = kStrands;
  for (; i + kStrands <= x.size(); i += kStrands)
    for (std::size_t strand = 0; strand < kStrands; ++strand) r[strand] += x[i + strand];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < x.size(); ++i) sum += x[i];
  return sum;
}

}  // namespace

std::vector<double> normalised(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  LS_CHECK(sum > 0 && std::isfinite(sum), "weights add up to ", sum);
  std::vector<double> result(weights.begin(), weights.end());
  for (double& weight : result) weight /= sum;
  return result;
}

std::array<Range, 3> split_bounds(const Shares& shares, std::int64_t pieces) {
  const std::vector<double> parts = normalised(shares);
  std::array<Range, 3> ranges;
  double share = 0;
  std::int64_t bound = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    share += parts[i];
    // llrint rounds half to even, the mode every program starts in.
    const std::int64_t end = std::llrint(share * static_cast<double>(pieces));
    ranges[i] = {bound, end};
    bound = end;
  }
  return ranges;
}

}  // namespace lockstep::data
