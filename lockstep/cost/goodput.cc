#include "lockstep/cost/goodput.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::cost {

Goodput goodput(const FailureRates& rates, double devices) {
  LS_CHECK(devices >= 1 && rates.device_hours > 0 && rates.save.value > 0, "devices ", devices);
  const double mu = rates.device_hours * 3600 / devices;
  const double save = rates.save.value, restart = rates.restart.value;
  const double tau = save + std::sqrt(2 * (mu + restart) * save + save * save);
  return {{mu}, {tau}, tau / ((mu + restart) * std::expm1((tau + save) / mu))};
}

double steps_between_saves(const Goodput& goodput, Seconds step) {
  return std::max(1.0, std::floor(goodput.interval.value / step.value));
}

}  // namespace lockstep::cost
