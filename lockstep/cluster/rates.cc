#include "lockstep/cluster/rates.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep::cluster {
namespace {

constexpr std::string_view kFit = "fitted, bench/fit_rates";
constexpr Rate fit(double value, double band) { return {value, band, kFit}; }
// A term the calibration rows do not determine, near the prior that bench/fit_rates.cc names.
constexpr std::string_view kHeld = "prior, not determined by calibration rows";
constexpr Rate held(double value) { return {value, 0.5, kHeld}; }

// Measured by others, see bench/fit_rates.cc.
constexpr std::string_view kPublished = "published measurements of collectives";
constexpr Rate published(double value) { return {value, 0.15, kPublished}; }

// clang-format off
constexpr Rate kTable[kNumTerms][3] = {
    // ampere           hopper              blackwell
    {fit(0.7852, 0.05), fit(0.7328, 0.05),  fit(0.6546, 0.10)}, // gemm
    {held(0.6002),      fit(0.5797, 0.10),  fit(0.6205, 0.15)}, // gemm8
    {held(0.7),         fit(0.841, 0.10),   fit(1, 0.50)},      // grouped
    {held(0.5625),      fit(1.3, 0.30),     fit(3.438, 0.15)},  // operands
    {held(0.6085),      held(0.5462),       held(0.5775)},      // waves
    {fit(0.75, 0.20),   fit(0.442, 0.10),   fit(0.3, 0.50)},    // attention
    {fit(0.6868, 0.30), fit(0.6935, 0.30),  fit(0.7382, 0.50)}, // stream
    {held(0.0003),      held(0.0003),       held(0.0003)},      // host_s
    {published(0.78),   published(0.8),     published(0.742)},  // scale_up
    {published(0.9),    published(0.9),     published(0.9)},    // network
    {held(0.503),       fit(0.7012, 0.50),  fit(0.6469, 0.50)}, // tensor_hidden
    {held(0.1608),      held(0.2379),       held(0.1432)},      // overlap_tax
    {held(0.003937),    held(0.0047),       held(0.003765)},    // spread
};
// clang-format on

constexpr DeviceRates fitted(std::string_view family, double processors, std::size_t column) {
  DeviceRates made = {family, processors, /*calibrated=*/true, {}};
  for (std::size_t term = 0; term < kNumTerms; ++term) made.terms[term] = kTable[term][column];
  return made;
}
constexpr DeviceRates kAmpere = fitted("ampere", 108, 0);
constexpr DeviceRates kHopper = fitted("hopper", 132, 1);
constexpr DeviceRates kBlackwell = fitted("blackwell", 148, 2);

DeviceRates borrowed(const DeviceRates& from, std::string_view family) {
  DeviceRates made = from;
  made.family = family;
  made.calibrated = false;
  for (Rate& rate : made.terms) rate.band = 0.5, rate.source = "borrowed, not calibrated";
  return made;
}

// The same chip at another power. Large products run at the limit of power, and dynamic power grows
// with the cube of the clock (its voltage rises with it), so their rates follow the cube root.
DeviceRates at_power(const DeviceRates& from, double watts_over_watts) {
  DeviceRates made = from;
  for (const Term term : {Term::kGemm, Term::kGemm8, Term::kAttention}) {
    Rate& rate = made.at(term);
    rate = {rate.value * std::cbrt(watts_over_watts), std::max(rate.band, 0.1),
            "fitted, scaled by the cube root of power"};
  }
  return made;
}

// Names and meanings.
constexpr const char* kWords[kNumTerms][2] = {
    {"gemm", "large matrix products, of the 16-bit peak"},
    {"gemm8", "large matrix products, of the 8-bit peak"},
    {"grouped", "products of experts, of the rate of plain ones"},
    {"operands", "times that operands cross the memory bus besides arithmetic"},
    {"waves", "of the rounding up to whole waves of tiles, that is felt"},
    {"attention", "fused attention, of the 16-bit peak"},
    {"stream", "elementwise passes, of memory bandwidth"},
    {"host_s", "seconds to launch the kernels of one layer's forward pass"},
    {"scale_up", "collectives inside a node, of its bandwidth"},
    {"network", "collectives across nodes, of network bandwidth"},
    {"tensor_hidden", "of tensor-parallel communication, that is hidden"},
    {"overlap_tax", "slowdown of the shorter of two overlapped activities"},
    {"spread", "spread of a step's time over devices"},
};

}  // namespace

std::string_view to_text(Term term) { return kWords[static_cast<std::size_t>(term)][0]; }
std::string_view meaning_of(Term term) { return kWords[static_cast<std::size_t>(term)][1]; }

namespace {

// Devices whose names begin so, the first that does. The fitted rows ran at 400, 700, and 1,000 or
// 1,200 W; a card's processors share what a module's have.
struct Chip {
  std::string_view name;
  const DeviceRates* rates;
  double watts, fitted_watts;
  double processors = 0;  // 0: as many as its family
};
constexpr Chip kChips[] = {
    {"a100-pcie", &kAmpere, 300, 400}, {"a100", &kAmpere, 400, 400},
    {"a800", &kAmpere, 400, 400},      {"h100-pcie", &kHopper, 350, 700, 114},
    {"h100-96", &kHopper, 500, 700},   {"h100", &kHopper, 700, 700},
    {"h200", &kHopper, 700, 700},      {"h800", &kHopper, 700, 700},
    {"gh200", &kHopper, 700, 700},     {"b200", &kBlackwell, 1000, 1000},
    {"b300", &kBlackwell, 1100, 1000}, {"gb200", &kBlackwell, 1200, 1200},
    {"gb300", &kBlackwell, 1400, 1200}};

const Chip* chip_of(std::string_view name) {
  const auto found =
      std::ranges::find_if(kChips, [&](const Chip& chip) { return name.starts_with(chip.name); });
  return found == std::end(kChips) ? nullptr : found;
}

}  // namespace

double usual_watts(std::string_view device) {
  const Chip* chip = chip_of(device);
  return chip == nullptr ? 0 : chip->watts;
}

const DeviceRates& rates_of(const DeviceType& device) {
  static const DeviceRates volta = borrowed(kAmpere, "volta");
  static const DeviceRates other = borrowed(kHopper, "other");
  const Chip* chip = chip_of(device.name);
  if (chip == nullptr) return device.name.starts_with("v100") ? volta : other;
  const double family = chip->rates->processors;
  const double processors = chip->processors > 0 ? chip->processors : family;
  const double watts = device.watts.known() ? device.watts.value : chip->watts;
  const double share = (watts / processors) / (chip->fitted_watts / family);
  if (share == 1) return *chip->rates;
  static std::mutex mutex;
  static std::map<std::pair<const Chip*, double>, DeviceRates> made;
  const std::scoped_lock lock(mutex);
  const auto [at, is_new] = made.try_emplace({chip, watts});
  if (is_new) at->second = at_power(*chip->rates, share), at->second.processors = processors;
  return at->second;
}

}  // namespace lockstep::cluster
