#include "lockstep/pipeline/generators/v_slots.h"

#include <vector>

#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/generators/v_list.h"

namespace lockstep::pipeline {
namespace {

constexpr int kInterval = 6;  // F, I and W of two chunks

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

}  // namespace

Result<Schedule> from_slots(std::string_view name, const Shape& shape, VSlots (*slots)(int, int)) {
  if (Result<void> fits = check_two_chunks(name, shape); !fits.ok()) return fits.error();
  std::vector<std::vector<Pass>> timetable;
  for (int r = 0; r < shape.coords; ++r)
    timetable.push_back(slots_list(shape, r, slots(shape.coords, r)));
  return Schedule::create(shape, Placement::kV, std::move(timetable));
}

}  // namespace lockstep::pipeline
