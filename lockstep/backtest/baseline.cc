#include "lockstep/backtest/baseline.h"

#include <algorithm>

#include "lockstep/cost/analytic/compute_time.h"

namespace lockstep::backtest {
namespace {

std::string class_of(const cost::PriceRequest& r) {
  return std::string(r.rates->family) + (r.precision == cost::Precision::kFp8 ? "/8" : "/16") +
         (r.keep == cost::Keep::kInput ? "/full" : "");
}

// Seconds at full utilisation.
double ideal_seconds(const cost::PriceRequest& r) {
  const cost::ForwardFlops flops = forward_flops(*r.shape, r.seq);
  return 3 * (flops.matmul + flops.attention_full) * r.global_batch * r.seq /
         (r.devices() * peak_of(r, cost::Precision::kBf16));
}

}  // namespace

void Baseline::add(const cost::PriceRequest& request, double seconds) {
  if (request.rates->calibrated)
    utilisations_[class_of(request)].push_back(ideal_seconds(request) / seconds);
}

void Baseline::finish() {
  constants_.clear();
  for (auto& [name, values] : utilisations_) {
    std::ranges::sort(values);
    constants_[name] = values[values.size() / 2];
  }
  // Medians of the calibration split of the published runs, for files that hold none.
  if (constants_.empty())
    constants_ = {{"ampere/16", 0.5101},   {"ampere/16/full", 0.3235}, {"blackwell/16", 0.3738},
                  {"blackwell/8", 0.6153}, {"hopper/16", 0.4948},      {"hopper/16/full", 0.4026},
                  {"hopper/8", 0.7424},    {"hopper/8/full", 0.2847}};
}

std::optional<double> Baseline::predict(const cost::PriceRequest& request) const {
  const auto found = constants_.find(class_of(request));
  if (found == constants_.end() || !request.rates->calibrated) return std::nullopt;
  return ideal_seconds(request) / found->second;
}

}  // namespace lockstep::backtest
