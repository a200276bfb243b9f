#include "lockstep/cluster/rates.h"

#include "lockstep/base/check.h"

namespace lockstep::cluster {
namespace {

constexpr std::string_view kFit = "fitted, bench/fit_rates";
constexpr Rate fit(double value, double band) { return {value, band, kFit}; }
// A term the calibration rows do not determine, near the prior that bench/fit_rates.cc names.
constexpr std::string_view kHeld = "prior, not determined by calibration rows";
constexpr Rate held(double value) { return {value, 0.5, kHeld}; }

// clang-format off
constexpr DeviceRates kAmpere = {"ampere", 108, true, {{
    fit(0.837, 0.05),  // gemm
    held(0.596),  // gemm8
    held(0.7),  // grouped
    fit(0.97, 0.50),  // operands
    held(0.571),  // waves
    fit(0.75, 0.30),  // attention
    fit(0.654, 0.30),  // stream
    held(0.0003),  // host_s
    held(0.663),  // scale_up
    held(0.78),  // network
    held(0.503),  // tensor_hidden
    held(0.2),  // overlap_tax
    held(0.0305),  // jitter
    held(0.00413),  // spread
}}};
constexpr DeviceRates kHopper = {"hopper", 132, true, {{
    fit(0.73, 0.07),  // gemm
    fit(0.6, 0.10),  // gemm8
    fit(0.886, 0.10),  // grouped
    fit(1.3, 0.30),  // operands
    held(0.518),  // waves
    fit(0.442, 0.07),  // attention
    fit(0.67, 0.30),  // stream
    held(0.0003),  // host_s
    fit(0.713, 0.50),  // scale_up
    held(0.617),  // network
    fit(0.794, 0.50),  // tensor_hidden
    held(0.327),  // overlap_tax
    held(0),  // jitter
    held(0.00395),  // spread
}}};
constexpr DeviceRates kBlackwell = {"blackwell", 148, true, {{
    fit(0.616, 0.10),  // gemm
    fit(0.578, 0.15),  // gemm8
    fit(1, 0.50),  // grouped
    fit(3.1, 0.20),  // operands
    held(0.69),  // waves
    fit(0.3, 0.30),  // attention
    held(0.696),  // stream
    held(0.0003),  // host_s
    fit(0.804, 0.50),  // scale_up
    held(0.8),  // network
    fit(0.841, 0.30),  // tensor_hidden
    held(0.129),  // overlap_tax
    held(0.00302),  // jitter
    held(0.00489),  // spread
}}};
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
      "gemm",   "gemm8",    "grouped", "operands",      "waves",       "attention", "stream",
      "host_s", "scale_up", "network", "tensor_hidden", "overlap_tax", "jitter",    "spread"};
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
