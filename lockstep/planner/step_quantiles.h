// How long a step may really take, given how far off predictions of published runs were. Pure
// functions.
#pragma once

namespace lockstep::planner {

// Errors of predicted step times, ln(predicted / measured) in percent, over runs that no rate was
// fitted on: their signed median, the median of their size, and the size that nine of ten do not
// exceed. From the headline of docs/accuracy.md, which `lockstep backtest` writes; a test holds the
// two to each other.
struct PublishedErrors {
  double bias = 0, median = 0, p90 = 0;
};
// Of devices whose family has calibration rows ("step time, held out"); of others, whose rates are
// borrowed ("step time, held out but excluded").
PublishedErrors published_errors(bool is_calibrated);

struct StepQuantiles {
  double p50 = 0;  // as many steps are faster as slower: the prediction without its bias
  double p95 = 0;  // one in twenty is slower: half of the tenth that is farther off than p90
};
StepQuantiles step_quantiles(double predicted_s, bool is_calibrated);

}  // namespace lockstep::planner
