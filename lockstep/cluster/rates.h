// What share of its data sheet a device reaches, term by term: the numbers that turn FLOPs and
// bytes into seconds. Each was fitted on published runs of the calibration split
// (bench/fit_rates.cc, docs/accuracy.md) or taken from a source, and carries the band within which
// it is known. There is no factor over a whole step. A `calibrate` file of one's own machine
// replaces them (cost/measured/calibrated_prices.h).
#pragma once

#include <array>
#include <string_view>

#include "lockstep/cluster/cluster.h"

namespace lockstep::cluster {

// One fitted number. `band` is relative: the true value is believed to lie within value (1 +-
// band).
struct Rate {
  double value = 0;
  double band = 0;
  std::string_view source = {};
};

// The terms, in the order of the table.
enum class Term : std::uint8_t {
  kGemm,       // share of the 16-bit peak that a large matrix product reaches
  kGemm8,      // the same of the 8-bit peak
  kGrouped,    // rate of expert products over that of plain ones
  kOperands,   // how often a product's operands cross the memory bus on top of its arithmetic
  kWaves,      // how much of the rounding up of a product to whole waves of tiles is felt, 0 to 1
  kAttention,  // share of the 16-bit peak of fused attention, 128-wide heads, long sequences
  kStream,     // share of memory bandwidth of elementwise passes
  kHost,       // seconds that launching the kernels of one layer's forward pass takes the host
  kScaleUp,    // share of the inner tier's bandwidth that collectives reach
  kNetwork,    // share of the network's
  kTensorHidden,  // share of tensor-parallel communication hidden where the stack overlaps it
  kOverlapTax,    // slowdown of the shorter of two overlapped activities (planner's sigma)
  kSpread,        // spread of device speeds: cv of a step's time over devices
};
inline constexpr std::size_t kNumTerms = 13;
std::string_view to_text(Term term);
std::string_view meaning_of(Term term);  // "fused attention, of the 16-bit peak"

struct DeviceRates {
  std::string_view family;  // "ampere"
  double processors = 1;    // of one device: tiles of a product that run at once
  bool calibrated = false;  // false: borrowed from another family, and every band is wide
  std::array<Rate, kNumTerms> terms = {};

  double operator[](Term term) const { return terms[static_cast<std::size_t>(term)].value; }
  Rate& at(Term term) { return terms[static_cast<std::size_t>(term)]; }
};

// The table of a device by its catalogue name and its power. Devices of a family share one; a
// device of no known family borrows the nearest and is marked as not calibrated. Any thread may
// call it; what it returns is never freed.
const DeviceRates& rates_of(const DeviceType& device);
// What a device of that name may draw; 0: not known.
double usual_watts(std::string_view device);

}  // namespace lockstep::cluster
