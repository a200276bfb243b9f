// Schedules that repeat one building block: Qi et al., "Pipeline parallelism with controllable
// memory", NeurIPS 2024. A coordinate runs F and I of both chunks of microbatch 0 in fixed slots,
// and each next microbatch six slots later. Weight gradients take the free slots, oldest first;
// then slots that stayed empty are dropped.
#pragma once

#include <string_view>

#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Slots of microbatch 0, in the order of its way down the V and back. No two are equal modulo 6.
struct VSlots {
  int forward_down = 0, forward_up = 0, input_grad_up = 0, input_grad_down = 0;
};

// `slots(p, r)` belongs to coordinate r of p. Refuses unusable shapes and chunks other than 2.
Result<Schedule> from_slots(std::string_view name, const Shape& shape, VSlots (*slots)(int, int));

}  // namespace lockstep::pipeline
