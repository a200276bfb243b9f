#include "lockstep/planner/step_quantiles.h"

#include <cmath>

namespace lockstep::planner {

PublishedErrors published_errors(bool is_calibrated) {
  return is_calibrated ? PublishedErrors{1.3, 7.9, 36.4} : PublishedErrors{29.7, 31.3, 110.0};
}

StepQuantiles step_quantiles(double predicted_s, bool is_calibrated) {
  const PublishedErrors errors = published_errors(is_calibrated);
  return {.p50 = predicted_s * std::exp(-errors.bias / 100),
          .p95 = predicted_s * std::exp(errors.p90 / 100)};
}

}  // namespace lockstep::planner
