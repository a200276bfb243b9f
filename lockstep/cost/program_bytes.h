// Sizes of every value of a program for a model: what the memory walk adds up. Tensors of passes
// come from lists (parts/unit_passes.h), states from the flat layout of each unit.
#pragma once

#include <cstdint>

#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/model/unit_bytes.h"
#include "lockstep/program/memory_walk.h"
#include "lockstep/program/program.h"

namespace lockstep::cost {

// What a step's bytes depend on besides model and program.
struct StepSizes {
  model::UnitSizes unit = {};
  std::int64_t shards = 1;  // ranks that share one copy of the parameters; without ZeRO unused
  std::int64_t expert_shards = 1;  // and one copy of experts
  bool looks_at_noise = false;     // of a step with noise: this rank takes the first of its samples
  std::int64_t shards_of(const program::StepShape& step, int segment) const {
    return step.is_experts(segment) ? expert_shards : shards;
  }
};

// Of one segment on one rank.
struct StateBytes {
  std::int64_t elements = 0;  // of the whole buffer, padded for its shards
  std::int64_t owned = 0;     // of the piece that this rank updates: all of it without ZeRO
  std::int64_t param = 0, main_grad = 0;                        // bytes of whole buffers
  std::int64_t param_shard = 0, grad_shard = 0, optimizer = 0;  // of the piece
};

// Weights in the working type; gradients and moments in it too, or in f32 if it is narrower, and
// then with a master copy of the weights. REQUIRES: 0 <= zero <= 3.
StateBytes state_bytes(const model::FlatLayout& flat, int zero, DType dtype, std::int64_t shards);

// `rows_met`: of a step that ran; else each rank meets as many as it sends.
// REQUIRES: check_unit_bytes(model.config).ok(), a tp that divides it, a step of the model's
// units.
program::ProgramBytes program_bytes(const model::Model& model, const program::StepShape& step,
                                    const StepSizes& sizes, const model::RowsMetBy& rows_met = {});

}  // namespace lockstep::cost
