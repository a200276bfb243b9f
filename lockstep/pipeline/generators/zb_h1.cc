// ZB-H1 of Qi et al., "Zero bubble pipeline parallelism", ICLR 2024: the order of 1F1B, but weight
// gradients run r microbatches behind the input gradients, so that the later a coordinate is in the
// pipeline, the sooner the one before it can go on. No coordinate holds more than the first.
#include "lockstep/pipeline/generators/generators.h"

namespace lockstep::pipeline {

Result<Schedule> zb_h1(const Shape& shape) {
  if (Result<void> fits = check_one_chunk("zb-h1", shape); !fits.ok()) return fits.error();
  return interleaved_zb(shape);
}

}  // namespace lockstep::pipeline
