// A batch that grows: early in a run small batches learn as much from a sample as large ones
// (McCandlish et al., arXiv 1812.06162). Its size is a pure function of the samples that steps
// before it took, so a run that is resumed or laid out anew goes on as if nothing had happened.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::spec {

// From `start` to the whole batch in equal increments that are spread evenly over the first
// `samples` samples. All zero: no ramp, every step takes the whole batch.
struct BatchRamp {
  std::int64_t start = 0;      // sequences in the first step
  std::int64_t increment = 0;  // sequences
  std::int64_t samples = 0;
  bool operator==(const BatchRamp&) const = default;

  bool is_none() const { return *this == BatchRamp(); }
  // REQUIRES of all: is_none(), or positive numbers and an increment that divides whole - start,
  // which is positive. `whole`: sequences of a step after the ramp.
  std::vector<std::int64_t> sizes(std::int64_t whole) const;  // that there may be, ascending
};

struct StepBatch {
  std::int64_t first = 0;      // sample
  std::int64_t sequences = 0;  // samples
  bool operator==(const StepBatch&) const = default;
};

// What step number `step`, from 0, takes. Its cost grows with the sizes, not with the steps.
StepBatch batch_of_step(const BatchRamp& ramp, std::int64_t whole, std::int64_t step);

}  // namespace lockstep::spec
