#include "lockstep/cost/goodput.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::cost {
namespace {

// Anchor A22: S = 10 s, mu = 6,000 s, R = 600 s and steps of 15 s: save every 24 steps, within one.
TEST(Goodput, OptimalInterval) {
  const FailureRates rates{6000.0 / 3600, {10}, {600}};
  EXPECT_NEAR(steps_between_saves(goodput(rates, 1), Seconds{15}), 24, 1);
}

// Llama 3: 419 interruptions in 54 days on 16,384 devices, one every 3.09 hours.
TEST(Goodput, Llama3) {
  const FailureRates llama;
  EXPECT_NEAR(llama.device_hours, 50'700, 50);
  EXPECT_NEAR(goodput(llama, 16384).between_failures.value / 3600, 3.09, 0.01);
  EXPECT_NEAR(goodput(llama, 16384).share, 0.85, 0.01);
}

// The recovery path decides at a million devices: shares for faster saves and restarts.
TEST(Goodput, RecoveryDecides) {
  FailureRates rates;
  rates.save = {5};
  rates.restart = {120};
  EXPECT_NEAR(goodput(rates, 16384).share, 0.96, 0.01);
  EXPECT_NEAR(goodput(rates, 1e6).share, 0.46, 0.01);
  rates.save = {1};
  rates.restart = {30};
  EXPECT_NEAR(goodput(rates, 1e6).share, 0.77, 0.01);
}

// The interval is a closed form near the best one: no other keeps a thousandth more work.
TEST(Goodput, IntervalIsOptimal) {
  const FailureRates rates;
  const Goodput best = goodput(rates, 16384);
  const auto share = [&](double tau) {
    const double mu = best.between_failures.value;
    return tau / ((mu + rates.restart.value) * (std::exp((tau + rates.save.value) / mu) - 1));
  };
  EXPECT_NEAR(share(best.interval.value), best.share, 1e-12);
  for (double factor = 0.3; factor < 3; factor *= 1.05)
    EXPECT_GE(best.share + 1e-3, share(best.interval.value * factor)) << factor;
}

}  // namespace
}  // namespace lockstep::cost
