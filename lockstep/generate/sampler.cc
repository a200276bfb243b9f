#include "lockstep/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::generate {

std::int64_t Sampler::draw(std::span<const float> logits, std::uint64_t index) const {
  if (how_.temperature == 0.0)
    return std::ranges::max_element(logits) - logits.begin();  // the first of equal ones
  const std::vector<std::int64_t> ids = candidates(logits);
  const double most = logits[static_cast<std::size_t>(*std::ranges::max_element(
      ids, {}, [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; }))];
  std::vector<double> sums;
  double sum = 0.0;
  for (const std::int64_t id : ids)
    sums.push_back(sum +=
                   std::exp((logits[static_cast<std::size_t>(id)] - most) / how_.temperature));
  const double drawn = random_.uniform(index) * sum;
  const auto found = std::ranges::upper_bound(sums, drawn);
  return ids[static_cast<std::size_t>(std::min(found - sums.begin(), std::ssize(sums) - 1))];
}

// Ascending.
std::vector<std::int64_t> Sampler::candidates(std::span<const float> logits) const {
  std::vector<std::int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int64_t a, std::int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  if (how_.top_k > 0 && how_.top_k < std::ssize(ids)) {
    std::ranges::nth_element(ids, ids.begin() + how_.top_k, likelier);
    ids.resize(static_cast<std::size_t>(how_.top_k));
  }
  if (how_.top_p < 1.0) {
    std::ranges::sort(ids, likelier);
    std::vector<double> shares;
    for (const std::int64_t id : ids)
      shares.push_back(std::exp((double{logit(id)} - logit(ids[0])) / how_.temperature));
    const double enough = how_.top_p * std::accumulate(shares.begin(), shares.end(), 0.0);
    std::size_t kept = 0;
    for (double sum = 0.0; kept < ids.size() && (kept == 0 || sum < enough);) sum += shares[kept++];
    ids.resize(kept);
  }
  std::ranges::sort(ids);
  return ids;
}

}  // namespace lockstep::generate
