// V-Min of Qi et al., "Pipeline parallelism with controllable memory", NeurIPS 2024: about a third
// of the activations of 1F1B, at equal times of F, I and W alone; otherwise every microbatch waits
// anew and the bubble grows with their number. Slots as in the authors' zero-bubble repository.
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/generators/v_slots.h"

namespace lockstep::pipeline {
namespace {

VSlots v_min_slots(int p, int r) {
  const int gap = p % 3 == 0 ? 2 : 0;  // keeps the four apart modulo 6
  return {r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p - 1 + gap - r};
}

}  // namespace

Result<Schedule> v_min(const Shape& shape) { return from_slots("v-min", shape, v_min_slots); }

}  // namespace lockstep::pipeline
