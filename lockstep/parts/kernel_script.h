// Writes down what a kernel takes and gives back, in order (private to parts).
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/parts/kernels.h"

namespace lockstep::parts {

class KernelScript {
 public:
  KernelScript(const Part& part, const Pass& pass, const Values& values, const Sizes& sizes)
      : part_(part), pass_(pass), values_(values), sizes_(sizes) {}

  std::vector<Step> take_steps() { return std::move(steps_); }

 protected:
  void output(std::size_t i) { steps_.push_back({Step::kOutput, i}); }
  void outputs(std::size_t from = 0) {
    for (std::size_t i = from; i < part_.out.size(); ++i) output(i);
  }
  void take(std::string_view name, std::int64_t bytes) {
    steps_.push_back({Step::kTake, 0, name, bytes});
  }
  void give(std::string_view name, std::int64_t bytes) {
    steps_.push_back({Step::kGive, 0, name, bytes});
  }
  void add(const std::vector<Step>& steps) {
    steps_.insert(steps_.end(), steps.begin(), steps.end());
  }
  void moment(std::string_view name, std::int64_t bytes) {
    take(name, bytes);
    give(name, bytes);
  }
  // While `body` runs.
  template <class Body>
  void with(std::string_view name, std::int64_t bytes, Body body) {
    take(name, bytes);
    body();
    give(name, bytes);
  }

  const Value& in(std::size_t i) const { return values_[part_.in[i]]; }
  const Value& out(std::size_t i) const { return values_[part_.out[i]]; }
  std::int64_t rows() const { return sizes_[Dim::kC]; }  // of a chunk

  // Rows of consecutive positions, of which a context rank has two runs a sequence.
  std::int64_t position_rows() const {
    return std::min(sizes_.cp > 1 ? sizes_.seq / 2 : sizes_.seq, sizes_[Dim::kP]);
  }

  // What a norm goes over: the last dimension, a wide one all of a token's, in blocks of tokens.
  const Value& normed() const {
    return part_.kind == Kind::kSquares ? in(0) : part_.kind == Kind::kRowDots ? in(1) : out(0);
  }
  std::int64_t columns() const {
    const Value& x = normed();
    const bool is_wide = part_.kind == Kind::kSquares || part_.kind == Kind::kRowDots ||
                         part_.kind == Kind::kWideNorm || part_.kind == Kind::kWideNormGrad;
    return is_wide ? sizes_.elements(x) / sizes_[x.dims[0]] : sizes_[x.dims.back()];
  }
  std::int64_t norm_rows() const { return sizes_.elements(normed()) / columns(); }

  // Where tokens lie in this rank's part of the vocabulary, while `body` looks.
  template <class Body>
  void with_token_rows(Body body) {
    const std::int64_t n = sizes_.tp > 1 ? sizes_[Dim::kT] : 0;
    take("shifted", n * 8);
    take("row", n * 8);
    take("elsewhere", n);
    give("shifted", n * 8);
    body();
    give("row", n * 8);
    give("elsewhere", n);
  }

  const Part& part_;
  const Pass& pass_;
  const Values& values_;
  const Sizes& sizes_;

 private:
  std::vector<Step> steps_;
};

// Of kernels for an accelerator (device_kernels.cc).
std::vector<Step> device_kernel_steps(const Part& part, const Pass& pass, const Values& values,
                                      const Sizes& sizes);
// Of those of a mixture of experts (device_experts.cc); of others their outputs.
std::vector<Step> device_expert_steps(const Part& part, const Pass& pass, const Values& values,
                                      const Sizes& sizes);

}  // namespace lockstep::parts
