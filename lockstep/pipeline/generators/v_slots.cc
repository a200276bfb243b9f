// Schedules that repeat one building block: Qi et al., "Pipeline parallelism with controllable
// memory", NeurIPS 2024. A pipeline rank runs F and I of both chunks of microbatch 0 in fixed
// slots, and each next microbatch six slots later. Weight gradients take the free slots, oldest
// first; then slots that stayed empty are dropped. Slots as in the authors' zero-bubble repository.
#include <vector>

#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/generators/v_list.h"

namespace lockstep::pipeline {
namespace {

constexpr int kInterval = 6;  // F, I and W of two chunks

// Slots of microbatch 0, in the order of its way down the V and back. No two are equal modulo 6.
struct VSlots {
  int forward_down = 0, forward_up = 0, input_grad_up = 0, input_grad_down = 0;
};

std::vector<Pass> slots_list(const Shape& shape, int r, const VSlots& slots) {
  VList list(shape, r);
  const int end = slots.input_grad_down + kInterval * (shape.microbatches - 1);
  for (int slot = 0; slot <= end; ++slot) {
    const auto is_slot_of = [&](int first) {
      return slot >= first && (slot - first) % kInterval == 0 &&
             (slot - first) / kInterval < shape.microbatches;
    };
    if (is_slot_of(slots.forward_down))
      list.forward(0);
    else if (is_slot_of(slots.forward_up))
      list.forward(1);
    else if (is_slot_of(slots.input_grad_up))
      list.input_grad(1);
    else if (is_slot_of(slots.input_grad_down))
      list.input_grad(0);
    else if (list.lacks_weight_grad())
      list.oldest_weight_grad();
  }
  while (list.lacks_weight_grad()) list.oldest_weight_grad();
  return list.take();
}

// `slots(p, r)` belongs to pipeline rank r of p. Refuses unusable shapes and chunks other than 2.
Result<Schedule> from_slots(std::string_view name, const Shape& shape, VSlots (*slots)(int, int)) {
  LS_TRY(check_two_chunks(name, shape));
  Timetable timetable;
  for (int r = 0; r < shape.coords; ++r)
    timetable.push_back(slots_list(shape, r, slots(shape.coords, r)));
  return Schedule::create(shape, Placement::kV, std::move(timetable));
}

VSlots v_half_slots(int p, int r) {
  const int gap = p % 2 == 0 ? 3 : 0;  // keeps the four apart modulo 6
  return {2 * r, 3 * p - 2 - r, 3 * p - 1 + gap + 2 * r, 6 * p - 2 + gap - r};
}

VSlots v_min_slots(int p, int r) {
  const int gap = p % 3 == 0 ? 2 : 0;  // keeps the four apart modulo 6
  return {r, 2 * p - 1 - r, 2 * p + gap + r, 4 * p - 1 + gap - r};
}

}  // namespace

// About half the activations of 1F1B.
Result<Schedule> v_half(const Shape& shape) { return from_slots("v-half", shape, v_half_slots); }

// About a third of them, at equal times of F, I and W alone; otherwise every microbatch waits anew
// and the bubble grows with their number.
Result<Schedule> v_min(const Shape& shape) { return from_slots("v-min", shape, v_min_slots); }

}  // namespace lockstep::pipeline
