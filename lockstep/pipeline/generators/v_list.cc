#include "lockstep/pipeline/generators/v_list.h"

#include <algorithm>

#include "lockstep/base/check.h"

namespace lockstep::pipeline {

void VList::append(PassKind kind, int chunk, int microbatch) {
  if (microbatch < microbatches_) passes_.push_back({kind, {stages_[chunk]}, {microbatch}});
}

void VList::backward(int chunk) {
  LS_CHECK(!lacks_weight_grad(chunk), "B of chunk ", chunk, " would overtake a W");
  append(PassKind::kBackward, chunk, inputs_[chunk]++);
  ++weights_[chunk];
}

void VList::input_grad(int chunk) {
  append(PassKind::kInputGrad, chunk, inputs_[chunk]++);
  waiting_.push_back(chunk);
}

void VList::weight_grad(int chunk) {
  LS_CHECK(lacks_weight_grad(chunk), "W of chunk ", chunk, " before its I");
  waiting_.erase(std::ranges::find(waiting_, chunk));
  append(PassKind::kWeightGrad, chunk, weights_[chunk]++);
}

void VList::oldest_weight_grad() {
  LS_CHECK(!waiting_.empty(), "every W has run");
  weight_grad(waiting_.front());
}

}  // namespace lockstep::pipeline
