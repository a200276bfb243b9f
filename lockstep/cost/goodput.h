// Failures, checkpoints and what is left of a cluster's time.
//
// With a mean time between interruptions mu, saves that block for S and restarts that take R, a step of work
// every tau between saves: goodput = tau / [(mu + R) (e^((tau + S) / mu) - 1)], largest at
// tau = S + sqrt(2 (mu + R) S + S^2) (arXiv 2410.18124); Young's rule sqrt(2 S mu) is its limit.
#pragma once

#include "lockstep/base/units.h"

namespace lockstep::cost {

struct FailureRates {
  // Device-hours per unexpected interruption: Llama 3 (arXiv 2407.21783, table 5) had 419 in 54 days on
  // 16,384 devices, 78 % of them hardware, 148 of faulty GPUs.
  double device_hours = 16384.0 * 54 * 24 / 419;
  Seconds save{60};      // blocking part of a checkpoint
  Seconds restart{600};  // from an interruption to the first new step
};

struct Goodput {
  Seconds between_failures;
  Seconds interval;  // of work between saves
  double share = 0;  // of the time that is kept work
};

// REQUIRES: devices >= 1, device_hours > 0, save > 0.
Goodput goodput(const FailureRates& rates, double devices);

// The interval as a whole number of steps, at least one.
double steps_between_saves(const Goodput& goodput, Seconds step);

}  // namespace lockstep::cost
