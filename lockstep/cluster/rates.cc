#include "lockstep/cluster/rates.h"

#include "lockstep/base/check.h"

namespace lockstep::cluster {
namespace {

constexpr std::string_view kFit = "fitted, bench/fit_rates";
constexpr Rate fit(double value, double band) { return {value, band, kFit}; }

// clang-format off
constexpr DeviceRates kAmpere = {"ampere", true, {{
    fit(0.80, 0.03), fit(0.80, 0.03), fit(0.75, 0.2), fit(0.5, 0.3), fit(0.55, 0.2), fit(0.45, 0.2), fit(0.75, 0.1), fit(3e-4, 0.3),
    fit(0.70, 0.1), fit(0.80, 0.1), fit(0.0, 0), fit(0.1, 0.5), fit(0.004, 0.5)}}};
constexpr DeviceRates kHopper = {"hopper", true, {{
    fit(0.70, 0.03), fit(0.60, 0.03), fit(0.75, 0.2), fit(0.5, 0.3), fit(0.5, 0.2), fit(0.45, 0.2), fit(0.75, 0.1), fit(3e-4, 0.3),
    fit(0.70, 0.1), fit(0.80, 0.1), fit(0.5, 0.3), fit(0.1, 0.5), fit(0.004, 0.5)}}};
constexpr DeviceRates kBlackwell = {"blackwell", true, {{
    fit(0.68, 0.03), fit(0.55, 0.03), fit(0.75, 0.2), fit(0.5, 0.3), fit(0.5, 0.2), fit(0.45, 0.2), fit(0.75, 0.1), fit(3e-4, 0.3),
    fit(0.70, 0.1), fit(0.80, 0.1), fit(0.5, 0.3), fit(0.1, 0.5), fit(0.004, 0.5)}}};
// clang-format on

DeviceRates borrowed(const DeviceRates& from, std::string_view family) {
  DeviceRates made = from;
  made.family = family;
  made.calibrated = false;
  for (Rate& rate : made.terms) rate.band = 0.5, rate.source = "borrowed, not calibrated";
  return made;
}

bool begins(std::string_view name, std::string_view with) { return name.starts_with(with); }

}  // namespace

std::string_view to_text(Term term) {
  constexpr std::array<std::string_view, kNumTerms> kNames = {
      "gemm",   "gemm8",    "grouped", "operands",      "attention",   "attention_grad", "stream",
      "host_s", "scale_up", "network", "tensor_hidden", "overlap_tax", "spread"};
  return kNames[static_cast<std::size_t>(term)];
}

const DeviceRates& rates_of(const DeviceType& device) {
  static const DeviceRates volta = borrowed(kAmpere, "volta");
  static const DeviceRates other = borrowed(kHopper, "other");
  const std::string_view name = device.name;
  if (begins(name, "a100") || begins(name, "a800")) return kAmpere;
  if (begins(name, "h100") || begins(name, "h200") || begins(name, "h800") || begins(name, "gh200"))
    return kHopper;
  if (begins(name, "b200") || begins(name, "gb200") || begins(name, "b300") ||
      begins(name, "gb300"))
    return kBlackwell;
  if (begins(name, "v100")) return volta;
  return other;
}

}  // namespace lockstep::cluster
