// From a run and its layout to the program of its step, and what its bytes depend on.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/model/arch.h"
#include "lockstep/program/program.h"
#include "lockstep/spec/spec.h"

namespace lockstep::spec {

// Layers of each stage of a model with so many: as the layout says, else
// pipeline::default_layer_split.
std::vector<int> stage_layers(const Layout& layout, std::int64_t layers);

// Which units make themselves again: Recompute::blocks of each stage's, every block where that is
// empty; never the embedding or the head.
std::vector<bool> recomputed_units(const std::vector<std::int32_t>& stage_begin,
                                   const std::vector<int>& blocks);

// What a step of this layout is lowered for; the placement is left to the schedule. `recompute` of
// single rows does not show here: what a block keeps is the block's own affair. Gradients of
// replicated parameters are partial over the tensor group under sequence parallelism, those of
// gains that every head uses without it too.
// REQUIRES: a layout that legal() accepts for this batch.
program::StepShape step_shape(const model::Model& model, const Layout& layout, const Batch& batch);

// The training step. Never refused for a layout that legal() accepts.
Result<program::Program> program_for(const model::Model& model, const Layout& layout,
                                     const Batch& batch);
// The same of a step_shape() that was changed.
Result<program::Program> program_for(const Layout& layout, const program::StepShape& step);

// What the bytes of a run's steps depend on besides model and program, of any rank; which of them
// looks at noise is left open. REQUIRES: a layout that legal() accepts.
cost::StepSizes step_sizes(const Spec& spec);

}  // namespace lockstep::spec
