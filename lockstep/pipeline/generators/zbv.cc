// ZB-V of Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, section 6, in the closed form
// of PyTorch's ScheduleZBVZeroBubble. The last stage is on the pipeline rank of the first, so the
// backward pass starts where the forward pass ends, and all pipeline ranks hold alike. Fewer
// microbatches than 2p-1 run the list of 2p-1 without the others.
#include <algorithm>
#include <vector>

#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/generators/v_list.h"

namespace lockstep::pipeline {
namespace {

void input_then_weight(VList& list, int chunk) {
  list.input_grad(chunk);
  list.weight_grad(chunk);
}

std::vector<Pass> zbv_list(const Shape& shape, int r) {
  const int p = shape.coords, n = std::max(shape.microbatches, 2 * p - 1);
  VList list(shape, r);
  for (int i = 0; i < 2 * (p - r) - 1; ++i) list.forward(0);
  for (int i = 0; i < r; ++i) {
    list.forward(1);
    list.forward(0);
  }
  for (int i = 0; i < p - r; ++i) {
    list.forward(1);
    input_then_weight(list, 1);
  }
  while (list.num_forwards(1) < n) {
    if (list.num_forwards(0) < n) list.forward(0);
    input_then_weight(list, 0);
    list.forward(1);
    input_then_weight(list, 1);
  }
  for (int i = 0; i < r; ++i) {
    list.input_grad(0);
    list.input_grad(1);
  }
  for (int i = 0; i < p - r; ++i) input_then_weight(list, 0);
  for (const int chunk : {1, 0})
    while (list.lacks_weight_grad(chunk)) list.weight_grad(chunk);
  return list.take();
}

}  // namespace

Result<Schedule> zbv(const Shape& shape) {
  LS_TRY(check_two_chunks("zbv", shape));
  Timetable timetable;
  for (int r = 0; r < shape.coords; ++r) timetable.push_back(zbv_list(shape, r));
  return Schedule::create(shape, Placement::kV, std::move(timetable));
}

}  // namespace lockstep::pipeline
