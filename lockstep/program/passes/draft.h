// A program in the making: the compute ops of each coordinate in their final order, and around each
// of them what other passes attached. Nothing is moved by attaching, so passes do not disturb each
// other; flatten() then writes the lists and turns handles into positions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

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

struct Draft {
  Program program;  // its step and transfers; the lists are empty
  std::vector<DraftList> lists;

  const StepShape& step() const { return program.step; }

  // visit(place, effects) for each compute op of the coordinate in order; it may attach ops.
  template <class Visit>
  void for_each_compute(Coord coord, const Visit& visit) const {
    const std::vector<Op>& compute = lists[static_cast<std::size_t>(coord.value)].compute;
    Effects effects;
    for (std::size_t at = 0; at < compute.size(); ++at) {
      write_effects(program, coord, compute[at], effects);
      visit(static_cast<std::int32_t>(at), std::as_const(effects));
    }
  }
};

Program flatten(Draft draft);

}  // namespace lockstep::program
