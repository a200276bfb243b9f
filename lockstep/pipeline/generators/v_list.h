// The list of one pipeline rank of a V, written pass by pass. Microbatches of each chunk and kind
// come in order, so a pass is named by its chunk alone: 0 goes down the V, 1 comes back up.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Belongs to one thread.
class VList {
 public:
  VList(const Shape& shape, int r)
      : microbatches_(shape.microbatches), stages_{r, 2 * shape.coords - 1 - r} {}

  void forward(int chunk) { append(PassKind::kForward, chunk, forwards_[chunk]++); }
  void backward(int chunk);
  void input_grad(int chunk);
  void weight_grad(int chunk);
  // Of the input gradients that still lack it, the oldest. REQUIRES: one does.
  void oldest_weight_grad();

  int num_forwards(int chunk) const { return forwards_[chunk]; }
  bool lacks_weight_grad() const { return !waiting_.empty(); }
  bool lacks_weight_grad(int chunk) const { return weights_[chunk] < inputs_[chunk]; }

  // Without the passes of microbatches that the shape does not have.
  std::vector<Pass> take() { return std::move(passes_); }

 private:
  void append(PassKind kind, int chunk, int microbatch);

  int microbatches_;
  std::array<int, 2> stages_;
  std::array<int, 2> forwards_ = {}, inputs_ = {}, weights_ = {};  // passes so far
  std::deque<int> waiting_;  // chunks of input gradients without weight gradients
  std::vector<Pass> passes_;
};

}  // namespace lockstep::pipeline
