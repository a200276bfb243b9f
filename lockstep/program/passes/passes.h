// The steps of lowering, in the order lower.cc runs them. Each is pure and adds one concern. What
// an op needs and makes is asked of effects.h, never restated.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/pipeline/schedule.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// Where an attached op stands. Those before kCompute come before the compute op, the others after
// it, ascending; within a slot in the order of attaching. What others wait for goes first, what may
// have to wait goes last.
enum class Slot : std::uint8_t {
  kPostRecv,
  kLoad,  // Load, Count
  kAllGatherUpdated,
  kGather,
  kWaitRecv,
  kWaitParam,
  kCompute,
  kSend,  // the Wait of the Send before, Send
  kFree,
  kReduce,  // the Wait of the Reduce before and what follows it, Reduce
  kTied,
  kNorm,
  kUpdate,
};

struct Attached {
  std::int32_t at = 0;
  Slot slot = Slot::kCompute;
  Op op;
};

struct DraftList {
  std::vector<Op> compute;
  std::vector<Attached> attached;  // an op's index here is its handle, and a Wait's target

  // The place behind all compute ops; only attached ops stand there.
  std::int32_t end() const { return static_cast<std::int32_t>(compute.size()); }
  // Returns the handle.
  std::int32_t attach(std::int32_t at, Slot slot, Op op);
  void attach_wait(std::int32_t at, Slot slot, std::int32_t handle);
};

// A program in the making: the compute ops of each pipeline rank in their final order, and around
// each of them what other passes attached. Nothing is moved by attaching, so passes do not disturb
// each other; flatten() then writes the lists and turns handles into positions.
struct Draft {
  Program program;  // its step and transfers; the lists are empty
  std::vector<DraftList> lists;

  const StepShape& step() const { return program.step; }

  // visit(place, effects) for each compute op of the pipeline rank in order; it may attach ops.
  template <class Visit>
  void for_each_compute(Coord coord, const Visit& visit) const {
    const std::vector<Op>& compute = lists[coord.value].compute;
    Effects effects;
    for (std::size_t at = 0; at < compute.size(); ++at) {
      write_effects(program, coord, compute[at], effects);
      visit(static_cast<std::int32_t>(at), std::as_const(effects));
    }
  }
};

// Refuses steps that the passes below cannot lower; they require one that this accepts.
Result<void> check_step(const StepShape& step);

// Stages become units: F ascends over a stage's units; B, I and W descend. The head is never split:
// its B stands where its I would. R stands right before the B or I of a unit that kept its input
// alone.
Draft expand_units(const pipeline::Schedule& schedule, StepShape step);
// F alone, microbatch by microbatch, each through all stages of the pipeline rank.
Draft expand_forward(StepShape step);

// Transfers between pipeline ranks. Send follows its producer; a sender has one Send to each
// receiver in flight, whose Wait comes before the next, the last one's at the end. PostRecv stands
// early enough for senders not to wait, in the order of the Sends, so that one plain queue per
// sender and receiver will do.
Draft add_transfers(Draft draft);

// What follows adds to the list of one pipeline rank.

// Load before the first op on the pipeline rank that reads the microbatch's tokens; on the head's
// pipeline rank Count after the first Load.
void add_loads(const Draft& draft, Coord coord, DraftList& list);

// ZeRO 1 and 2: Publish of every unit at the start in order of first use, waited for there.
// ZeRO 3: Gather and Free by residency.h; Gather `prefetch` compute ops early, yet behind the
// unit's own Free.
void add_parameters(const Draft& draft, Coord coord, DraftList& list);

// Reduce after a period's last gradient of a segment. One is in flight, and one of experts: it is
// waited for, and summed over replicas, when the next is issued or at the end. Once a unit's
// periods are all in, its partial gradients are summed over the tensor group; that is waited for
// when the next such sum is issued or at the end.
void add_reductions(const Draft& draft, Coord coord, DraftList& list);

// The end of the step: ReduceTied, Norm, and Update of every unit. Evaluation: Norm alone.
void add_update(const Draft& draft, Coord coord, DraftList& list);

Program flatten(Draft draft);

}  // namespace lockstep::program
