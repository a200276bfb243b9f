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
    fit(0.854, 0.05),  // gemm
    held(0.596),  // gemm8
    held(0.7),  // grouped
    fit(1.08, 0.50),  // operands
    held(0.501),  // waves
    fit(0.75, 0.30),  // attention
    fit(0.66, 0.30),  // stream
    held(0.0003),  // host_s
    held(0.66),  // scale_up
    held(0.775),  // network
    held(0.503),  // tensor_hidden
    held(0.21),  // overlap_tax
    held(0.035),  // jitter
    held(0.00429),  // spread
}}};
constexpr DeviceRates kHopper = {"hopper", 132, true, {{
    fit(0.727, 0.07),  // gemm
    fit(0.6, 0.10),  // gemm8
    fit(0.925, 0.10),  // grouped
    fit(1.27, 0.30),  // operands
    held(0.526),  // waves
    fit(0.442, 0.10),  // attention
    fit(0.666, 0.30),  // stream
    held(0.0003),  // host_s
    fit(0.706, 0.50),  // scale_up
    fit(0.614, 0.50),  // network
    fit(0.807, 0.50),  // tensor_hidden
    held(0.321),  // overlap_tax
    held(0),  // jitter
    held(0.0044),  // spread
}}};
constexpr DeviceRates kBlackwell = {"blackwell", 148, true, {{
    fit(0.615, 0.10),  // gemm
    fit(0.581, 0.15),  // gemm8
    fit(1, 0.50),  // grouped
    fit(3.06, 0.20),  // operands
    held(0.695),  // waves
    fit(0.3, 0.30),  // attention
    held(0.691),  // stream
    held(0.0003),  // host_s
    held(0.799),  // scale_up
    held(0.8),  // network
    fit(0.845, 0.30),  // tensor_hidden
    held(0.129),  // overlap_tax
    held(0.00483),  // jitter
    held(0.00479),  // spread
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
