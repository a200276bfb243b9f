// A digest of a job's whole state that no layout changes and that nobody gathers the state for. Every
// element of every parameter and moment is hashed with its place in the whole tensor, the hashes are
// added modulo 2^64, and ranks add up their sums; each element counts once, on one of the ranks that
// hold it. A sum does not depend on the order, so neither does the digest on who holds what. It finds
// accidents (two states that differ collide by chance once in 2^64), not forgeries.
#pragma once

#include <cstdint>

#include "lockstep/model/arch.h"
#include "lockstep/program/program.h"
#include "lockstep/runtime/tensor_workspace.h"

namespace lockstep::train {

// This rank's summand. Of bf16 runs the master weights count.
std::uint64_t own_digest(const model::Model& model, const program::StepShape& step,
                         const runtime::Place& place, const runtime::TensorWorkspace& workspace);

// From the sum over all ranks, and the number of updates that the optimizer has made.
std::uint64_t whole_digest(std::uint64_t sum, std::int64_t updates);

}  // namespace lockstep::train
