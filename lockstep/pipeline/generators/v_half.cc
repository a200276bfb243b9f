// V-Half of Qi et al., "Pipeline parallelism with controllable memory", NeurIPS 2024: about half
// the activations of 1F1B. Slots as in the authors' zero-bubble repository.
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/generators/v_slots.h"

namespace lockstep::pipeline {
namespace {

VSlots v_half_slots(int p, int r) {
  const int gap = p % 2 == 0 ? 3 : 0;  // keeps the four apart modulo 6
  return {2 * r, 3 * p - 2 - r, 3 * p - 1 + gap + 2 * r, 6 * p - 2 + gap - r};
}

}  // namespace

Result<Schedule> v_half(const Shape& shape) { return from_slots("v-half", shape, v_half_slots); }

}  // namespace lockstep::pipeline
