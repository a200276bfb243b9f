// Which samples of a step a rank reads: they are dealt in blocks to data ranks, then microbatches, then rows.
// With any number of ranks and any size of microbatch each sample of the step is dealt once.
#pragma once

#include <cstdint>

namespace lockstep::data {

struct StepSamples {
  std::int64_t first = 0;         // of the step
  std::int64_t microbatches = 1;  // of one data rank
  std::int64_t rows = 1;          // samples of a microbatch

  std::int64_t sample(std::int64_t data_rank, std::int64_t microbatch, std::int64_t row) const {
    return first + (data_rank * microbatches + microbatch) * rows + row;
  }
};

}  // namespace lockstep::data
