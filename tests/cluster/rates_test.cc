#include "lockstep/cluster/rates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/cluster/catalog.h"

namespace lockstep::cluster {
namespace {

// Every device has a table, every number a source and a band, and no product is faster than the
// largest ever measured on the device.
TEST(Rates, CarrySourceAndBand) {
  for (const CatalogRow& row : catalog()) {
    const DeviceRates& rates = rates_of(row.device);
    for (std::size_t i = 0; i < kNumTerms; ++i) {
      EXPECT_FALSE(rates.terms[i].source.empty()) << row.device.name << i;
      EXPECT_GT(rates.terms[i].band, 0) << row.device.name << i;
      EXPECT_FALSE(to_text(static_cast<Term>(i)).empty());
    }
    EXPECT_GT(rates.processors, 1);
    if (rates.calibrated && row.device.largest_matmul_bf16.known()) {
      const double most = row.device.largest_matmul_bf16.value / row.device.peak_bf16.value;
      EXPECT_LE(rates[Term::kGemm], most + 1e-3) << row.device.name;
    }
  }
}

// A card has less power than the module of the same chip, and the H100's fewer processors.
TEST(Rates, OfCardsAreThoseOfTheirChipAtLessPower) {
  const auto rates = [](const char* name) -> const DeviceRates& {
    return rates_of(cluster_from_name(name)->device);
  };
  EXPECT_DOUBLE_EQ(rates("a100-pcie")[Term::kGemm], rates("a100")[Term::kGemm] * std::cbrt(0.75));
  EXPECT_EQ(rates("h100-pcie").processors, 114);
  EXPECT_DOUBLE_EQ(rates("h100-pcie")[Term::kGemm],
                   rates("h100")[Term::kGemm] * std::cbrt(0.5 * 132 / 114));
  EXPECT_EQ(rates("h100-pcie")[Term::kStream], rates("h100")[Term::kStream]);
}

// Whoever knows the power of their devices.
TEST(Rates, FollowThePowerThatIsSaid) {
  DeviceType device = cluster_from_name("h100")->device;
  const DeviceRates& usual = rates_of(device);
  device.watts = {500, Origin::kUser};
  const DeviceRates& less = rates_of(device);
  EXPECT_EQ(less[Term::kGemm], rates_of(cluster_from_name("h100-96")->device)[Term::kGemm]);
  EXPECT_EQ(less[Term::kStream], usual[Term::kStream]);
  EXPECT_EQ(&less, &rates_of(device));
  device.watts = {700, Origin::kUser};
  EXPECT_EQ(&rates_of(device), &usual);
  EXPECT_EQ(usual_watts("mi300x"), 0);
}

TEST(Rates, OnlyFamiliesWithCalibrationRowsSaySo) {
  const auto calibrated = [](const char* name) {
    for (const CatalogRow& row : catalog())
      if (row.device.name == name) return rates_of(row.device).calibrated;
    ADD_FAILURE() << name;
    return false;
  };
  for (const char* name : {"a100", "a100-40", "h100", "h200", "b200", "gb300"})
    EXPECT_TRUE(calibrated(name));
  for (const char* name : {"v100", "tpu-v5p", "mi300x", "cpu-gloo"}) EXPECT_FALSE(calibrated(name));
}

}  // namespace
}  // namespace lockstep::cluster
