// Runs the passes of a unit, which are lists of parts (parts/unit_passes.h): one kernel after the
// other (kernels.h), on memory that is taken and given back as the list says. No pass uses
// LibTorch's autograd; callers need no guard, because nothing here requires a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/nn/pass_run.h"

namespace lockstep::nn {

// What one pass of a microbatch keeps for the next: stash, checkpoint, or operands of W.
using Kept = std::vector<std::pair<parts::ValueId, at::Tensor>>;

// Where a unit's parameters lie in its buffers; only some have experts.
struct UnitPlace {
  const model::FlatLayout& own;
  const model::FlatLayout* experts;
  // NOLINTNEXTLINE(google-explicit-constructor): as UnitBuffers
  UnitPlace(const model::FlatLayout& of_unit, const model::FlatLayout* of_experts = nullptr)
      : own(of_unit), experts(of_experts) {}
};

// Immutable; several threads may run passes of one, where its groups are of one rank.
class UnitRunner {
 public:
  // `place` is of this rank's share of the parameters. `rope` must outlive this; only blocks need
  // one. REQUIRES: model::check_unit_bytes(config).ok(), groups of sizes.tp, sizes.cp and sizes.ep.
  UnitRunner(const model::ModelConfig& config, const model::Unit& unit, const UnitPlace& place,
             const model::UnitSizes& sizes, const Rope* rope, TensorGroup group = {},
             ContextGroup context = {}, ExpertGroup experts = {});

  // `given` comes from another unit: the input [P, h], or the gradient of the output; undefined
  // where the pass has none. What is returned is for another one. `kept` is used up and becomes
  // what this pass keeps. Takes both over: each tensor ends with its last use.
  at::Tensor run(parts::UnitPass pass, at::Tensor given, Kept& kept,
                 const PassInputs& inputs) const;

  const parts::UnitPasses& passes() const { return passes_; }
  const UnitContext& context() const { return context_; }

 private:
  parts::UnitPasses passes_;
  UnitContext context_;
};

}  // namespace lockstep::nn
