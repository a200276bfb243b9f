// DualPipeV: DualPipe of DeepSeek-AI, "DeepSeek-V3 technical report", 2024, cut in half into a V so
// that no pipeline rank holds two copies, as in the dualpipev.py of their repository. There a
// forward and a backward pass of the main phase share a pipeline rank to hide the exchange between
// experts; here they run one after the other, F first.
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/pipeline/generators/v_list.h"

namespace lockstep::pipeline {
namespace {

void forward_then_backward(VList& list, int forward, int backward) {
  list.forward(forward);
  list.backward(backward);
}

// Backward passes of both chunks, the later half without weight gradients.
void drain(VList& list, int count) {
  for (int i = 0; i < 2 * count; ++i) {
    const int chunk = i % 2 == 0 ? 1 : 0;
    if (i < count)
      list.backward(chunk);
    else
      list.input_grad(chunk);
  }
}

std::vector<Pass> dualpipe_list(const Shape& shape, int r) {
  const int p = shape.coords, m = shape.microbatches, behind = p - 1 - r;
  VList list(shape, r);
  for (int i = 0; i < 2 * behind; ++i) list.forward(0);
  for (int i = 0; i < r + 1; ++i) {
    list.forward(0);
    list.forward(1);
  }
  for (int i = 0; i < behind; ++i) {
    list.input_grad(1);
    list.oldest_weight_grad();
    list.forward(1);
  }
  for (int i = 0; i < m - 2 * p + r + 1; ++i) {
    forward_then_backward(list, 0, 1);
    forward_then_backward(list, 1, 0);
  }
  for (int i = 0; i < behind; ++i) {
    list.backward(1);
    forward_then_backward(list, 1, 0);
  }
  drain(list, r + 1);
  for (int i = 0; i < behind; ++i) {
    list.oldest_weight_grad();
    list.input_grad(0);
  }
  for (int i = 0; i < r + 1; ++i) list.oldest_weight_grad();
  return list.take();
}

}  // namespace

Result<Schedule> dualpipe_v(const Shape& shape) {
  LS_TRY(check_two_chunks("dualpipe-v", shape));
  if (shape.microbatches < 2 * shape.coords)
    return Error{Code::kOutOfRange,
                 join_parts("schedule `dualpipe-v` fills the pipeline from both ends and needs two "
                            "microbatches per pipeline rank, microbatches = ",
                            shape.microbatches, " is less than ", 2 * shape.coords),
                 join_parts("use ", 2 * shape.coords, " microbatches or more, or `zbv`")};
  Timetable timetable;
  for (int r = 0; r < shape.coords; ++r) timetable.push_back(dualpipe_list(shape, r));
  return Schedule::create(shape, Placement::kV, std::move(timetable));
}

}  // namespace lockstep::pipeline
