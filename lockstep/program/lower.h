// Lowering: from the order of compute to the complete step of every pipeline rank. Pure; any thread
// may call. The passes it is made of are in passes/passes.h.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// The training step. Shape and placement are the schedule's, forward_only is false, whatever `step`
// says. kOutOfRange, naming the field, for
// - stage_begin that does not ascend from 0, leaves a stage empty, or does not fit the number of
//   stages, and fewer than 2 units;
// - recompute of another length than the units, or of the embedding or head;
// - experts of another length than the units, or of the embedding or head;
// - partial of another length than the units, or where tensor_parallel is false;
// - zero outside 0-3, resident_units below 1, prefetch below 0;
// - more than 2^24 units x microbatches.
// The last op of every list is Update of its last unit.
Result<Program> lower(const pipeline::Schedule& schedule, StepShape step);

// Evaluation: forward passes, microbatches in order, and the sum of the loss, which the last op,
// Norm, carries. It may follow any step, so ZeRO 1 and 2 gather updated parameters first. Every
// pipeline rank takes a microbatch through all its stages before the next, so more chunks make
// evaluation slower. Refuses what lower() refuses, and shapes that check_shape does.
Result<Program> lower_forward_only(StepShape step);

// First unit of each stage, then the number of units, as StepShape wants it, for so many layers on
// each stage; embedding and head come on top. REQUIRES: at least one stage.
std::vector<std::int32_t> first_units(const std::vector<int>& layers);
// The same for pipeline::default_layer_split of all units but embedding and head. With fewer units
// than stages some stage is empty, and lower() refuses it. REQUIRES: units >= 2, stages >= 1.
std::vector<std::int32_t> split_units(int units, int stages);

}  // namespace lockstep::program
