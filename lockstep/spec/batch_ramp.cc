#include "lockstep/spec/batch_ramp.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::spec {
namespace {

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Samples after which there have been `n` of `all` increments: the least c with c all / samples >=
// n.
std::int64_t samples_until(const BatchRamp& ramp, std::int64_t n, std::int64_t all) {
  const std::int64_t each = ramp.samples / all, rest = ramp.samples % all;
  return n * each + divided_up(n * rest, all);
}

// How many increments there are.
std::int64_t increments(const BatchRamp& ramp, std::int64_t whole) {
  LS_CHECK(ramp.start > 0 && ramp.increment > 0 && ramp.samples > 0 && whole > ramp.start &&
               (whole - ramp.start) % ramp.increment == 0,
           "a batch from ", ramp.start, " to ", whole, " by ", ramp.increment, " over ",
           ramp.samples);
  return (whole - ramp.start) / ramp.increment;
}

}  // namespace

std::vector<std::int64_t> BatchRamp::sizes(std::int64_t whole) const {
  std::vector<std::int64_t> all;
  if (!is_none())
    for (std::int64_t size = start; size < whole; size += increment) all.push_back(size);
  all.push_back(whole);
  return all;
}

StepBatch batch_of_step(const BatchRamp& ramp, std::int64_t whole, std::int64_t step) {
  std::int64_t consumed = 0;
  if (!ramp.is_none()) {
    const std::int64_t all = increments(ramp, whole);
    for (std::int64_t n = 0; n < all; ++n) {
      const std::int64_t size = ramp.start + n * ramp.increment;
      const std::int64_t left = samples_until(ramp, n + 1, all) - consumed;
      const std::int64_t steps = std::max<std::int64_t>(0, divided_up(left, size));
      if (step < steps) return {consumed + step * size, size};
      step -= steps;
      consumed += steps * size;
    }
  }
  return {consumed + step * whole, whole};
}

}  // namespace lockstep::spec
