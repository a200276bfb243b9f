// The steps of lowering, in the order lower.cc runs them. Each is pure and adds one concern. What
// an op needs and makes is asked of effects.h, never restated.
#pragma once

#include "lockstep/pipeline/schedule.h"
#include "lockstep/program/passes/draft.h"

namespace lockstep::program {

// Refuses steps that the passes below cannot lower; they require one that this accepts.
Result<void> check_step(const StepShape& step);

// Stages become units: F ascends over a stage's units; B, I and W descend. The head is never split:
// its B stands where its I would. R stands right before the B or I of a unit that kept its input
// alone.
Draft expand_units(const pipeline::Schedule& schedule, StepShape step);
// F alone, microbatch by microbatch, each through all stages of the coordinate.
Draft expand_forward(StepShape step);

// Transfers between coordinates. Send follows its producer; a sender has one Send to each receiver
// in flight, whose Wait comes before the next, the last one's at the end. PostRecv stands early
// enough for senders not to wait, in the order of the Sends, so that one plain queue per sender and
// receiver will do.
Draft add_transfers(Draft draft);

// What follows adds to the list of one coordinate.

// Load before the first op on the coordinate that reads the microbatch's tokens; on the head's
// coordinate Count after the first Load.
void add_loads(const Draft& draft, Coord coord, DraftList& list);

// ZeRO 1 and 2: Publish of every unit at the start in order of first use, waited for there.
// ZeRO 3: Gather and Free by residency.h; Gather `prefetch` compute ops early, yet behind the
// unit's own Free.
void add_parameters(const Draft& draft, Coord coord, DraftList& list);

// Reduce after a period's last gradient of a unit. One is in flight: it is waited for, and summed
// over replicas, when the next is issued or at the end. Once a unit's periods are all in, its
// partial gradients are summed over the tensor group; that is waited for when the next such sum is
// issued or at the end.
void add_reductions(const Draft& draft, Coord coord, DraftList& list);

// The end of the step: ReduceTied, Norm, and Update of every unit. Evaluation: Norm alone.
void add_update(const Draft& draft, Coord coord, DraftList& list);

}  // namespace lockstep::program
