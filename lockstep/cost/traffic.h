// What the ops of a program send in one step on one rank, predicted entry by entry as the ledger
// counts it: logical bytes and calls by (axis, operation), groups of one member and padding
// included, and what tensor ranks send inside a unit's passes (parts/unit_passes.h). A run's
// ledger must equal it exactly.
#pragma once

#include <map>

#include "lockstep/base/ids.h"
#include "lockstep/comm/ledger.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/arch.h"
#include "lockstep/parts/part.h"
#include "lockstep/program/program.h"

namespace lockstep::cost {

// Whose ranks the collectives of a pass are of.
mesh::Axis axis_of(parts::Group group);

using Traffic = std::map<comm::Ledger::Key, comm::Ledger::Entry>;

// Axes are named as mesh::to_text names them, "tied" for the two ranks that share a weight.
// `rows_met`: of a step that ran; else each rank meets as many as it sends.
// REQUIRES: a mesh of as many pipeline coordinates as the program and with sizes.shards ranks in a
// shard group, sizes.unit.tp in a tensor group, and in that several if step.tensor_parallel says
// so.
Traffic step_traffic(const program::Program& program, const model::Model& model,
                     const StepSizes& sizes, const mesh::Mesh& mesh, Rank rank,
                     const model::RowsMetBy& rows_met = {});

}  // namespace lockstep::cost
