#include "lockstep/planner/goodput.h"

#include <cmath>

#include "lockstep/base/check.h"

namespace lockstep::planner {
namespace {

// Where the share is highest its derivative is 0: exp((t + save) / mtbf) (1 - t / mtbf) = 1, which
// falls in t.
double best_interval(double mtbf, double save) {
  double low = 0, high = mtbf;
  for (int i = 0; i < 60; ++i) {
    const double t = (low + high) / 2;
    (std::exp((t + save) / mtbf) * (1 - t / mtbf) > 1 ? low : high) = t;
  }
  return low;
}

}  // namespace

Goodput goodput(double devices, const Reliability& r) {
  LS_CHECK(devices > 0 && r.device_hours > 0 && r.save_s > 0 && r.restart_s > 0,
           "reliability is made of positive numbers");
  Goodput found;
  found.mtbf_s = r.device_hours * 3600 / devices;
  found.interval_s = best_interval(found.mtbf_s, r.save_s);
  found.share = found.interval_s / ((found.mtbf_s + r.restart_s) *
                                    std::expm1((found.interval_s + r.save_s) / found.mtbf_s));
  return found;
}

}  // namespace lockstep::planner
