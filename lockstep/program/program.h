// The complete step of every rank as plain data, at the grain of units: compute, transfers between
// pipeline ranks, ZeRO's gathers and frees, reductions, the optimizer, and the waits of all that is
// asynchronous. Planner, memory walk, simulator, executor and drawer read this one structure.
//
// Ranks that share a pipeline rank run the same list, so a program holds one list per
// pipeline rank, whatever the data degree. What an op needs, makes, changes and frees is not stored
// here: effects.h derives it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/base/segment.h"
#include "lockstep/pipeline/schedule.h"

namespace lockstep::program {

enum class OpKind : std::uint8_t {
  kLoad,        // microbatch: its tokens, where the embedding or the head needs them
  kCount,       // valid tokens of the whole step, over the data group: the loss divides by it
  kForward,     // F: unit, microbatch
  kRecompute,   // R: rebuilds what a forward pass kept, from the unit's input
  kBackward,    // B: I and W at once
  kInputGrad,   // I
  kWeightGrad,  // W
  kSend,        // transfer
  kPostRecv,    // transfer
  kGather,      // unit: whole parameters from shards
  kFree,        // unit: drops them
  kReduce,  // unit, period: sums gradients over the data group (over the shard group when sharded)
  kReduceAcross,      // unit, period: sums reduced shards over the replicas of hybrid sharding
  kReduceTied,        // embedding's and head's gradients of one shared weight
  kNorm,              // global gradient norm, loss
  kUpdate,            // unit: optimizer
  kAllGatherUpdated,  // unit: whole parameters from updated pieces, at the start of the next step
  kWait,              // completes an asynchronous op of the same list
  // Behind the others, so that programs without it keep their hashes.
  // unit: sums partial gradients of parameters that tensor ranks hold alike, over those that do
  kReduceReplicated,
};
inline constexpr int kNumOpKinds = 19;

// The ranks that take part in an op's communication.
enum class CommGroup : std::uint8_t {
  kNone,
  kSelf,                // a group of one; never emitted by lowering
  kShard,               // ranks that hold the shards of one copy
  kReplicate,           // ranks that hold the same shard of different copies
  kData,                // both: all ranks that see different samples
  kPipeline,            // all pipeline ranks of a pipeline
  kDataThenPipeline,    // one after the other
  kTied,                // first and last stage of a pipeline
  kPeer,                // the other end of a transfer
  kTensor,              // ranks that share the units of one pipeline rank
  kDataTensorPipeline,  // all three, one after the other
  // The first, second and third of these, of the ranks that hold the same experts:
  kExpertShard,
  kExpertReplicate,
  kExpertData,
};
inline constexpr int kNumCommGroups = 14;

struct Op {
  OpKind kind = OpKind::kLoad;
  CommGroup group = CommGroup::kNone;
  std::int32_t unit = -1;  // where it is about parameters or their gradients, the segment
  std::int32_t microbatch = -1;
  std::int32_t period = -1;    // of a reduction
  std::int32_t transfer = -1;  // index into Program::transfers
  std::int32_t target = -1;    // kWait: index in the same list
  bool operator==(const Op&) const = default;
};

// One tensor from one pipeline rank to another: the output of `unit` forwards, or, as a gradient,
// the gradient of the output of `unit` backwards.
struct Transfer {
  bool is_grad = false;
  std::int32_t unit = 0;
  std::int32_t microbatch = 0;
  Coord from = {};
  Coord to = {};
  bool operator==(const Transfer&) const = default;
};

// After how much backward work gradients are reduced.
enum class Period : std::uint8_t { kStep, kMicrobatch };

// What a program is lowered for. Units are numbered over the whole model: 0 is the embedding,
// units-1 the head, everything between a block. Parameters lie in segments (base/segment.h).
struct StepShape {
  pipeline::Shape shape = {};  // of the pipeline
  pipeline::Placement placement = pipeline::Placement::kLoop;
  std::vector<std::int32_t> stage_begin = {0, 3};  // first unit of each stage, then all units
  int zero = 0;                                    // 0-3
  Period period = Period::kStep;
  bool replicas = false;             // hybrid sharding: reduced shards are summed over replicas
  bool tied = false;                 // embedding and head share one weight
  std::vector<bool> recompute = {};  // per unit: keeps its input alone; empty: none does
  int resident_units = 1;            // ZeRO-3: gathered units kept, the one in use included
  int prefetch = 1;                  // ZeRO-3: gathers are issued this many computations early
  bool forward_only = false;         // evaluation: no backward, no optimizer
  bool tensor_parallel = false;      // the tensor group has several ranks
  // Per unit: gradients of parameters that tensor ranks hold alike are partial over them, as those
  // of norms are under sequence parallelism; empty: of none.
  std::vector<bool> partial = {};
  std::vector<bool> experts = {};  // per unit: it has routed experts; empty: none has
  int routed = 0;  // experts of such a unit, whose tokens Norm adds up; 0: it does not
  // What the first microbatch adds to the gradient is looked at alone, on the first of the data
  // ranks, for the gradient noise scale.
  bool noise = false;
  // Norm adds up what ranks find when they check their state (train/state_check.h).
  bool checks = false;

  int units() const { return stage_begin.back(); }
  int head() const { return units() - 1; }
  bool recomputes(int unit) const { return !recompute.empty() && recompute[unit]; }
  bool is_partial(int segment) const {
    return !partial.empty() && !is_experts(segment) && partial[segment];
  }
  std::int64_t all_experts() const { return std::ranges::count(experts, true) * routed; }
  // Numbers in exec::StepSums::expert_tokens; 0 where no gradients are computed.
  std::int64_t num_routed() const { return forward_only ? 0 : all_experts(); }
  bool has_experts(int unit) const { return !experts.empty() && experts[unit]; }
  bool is_experts(int segment) const {
    return !experts.empty() && lockstep::is_experts(segment, units());
  }
  int unit_of(int segment) const {
    return is_experts(segment) ? lockstep::unit_of(segment, units()) : segment;
  }
  int experts_of(int unit) const { return lockstep::experts_of(unit, units()); }
  // One more than the greatest.
  int num_segments() const { return experts.empty() ? units() : 2 * units(); }
  // Calls visit(segment) for those of the unit, experts last.
  template <class Visit>
  void for_each_segment(int unit, const Visit& visit) const {
    visit(unit);
    if (has_experts(unit)) visit(experts_of(unit));
  }
  // The same for all that a pipeline rank holds, unit by unit.
  template <class Visit>
  void for_each_segment(Coord coord, const Visit& visit) const {
    for (int unit = 0; unit < units(); ++unit)
      if (holds(coord, unit)) for_each_segment(unit, visit);
  }
  int periods() const { return period == Period::kStep ? 1 : shape.microbatches; }
  // Whether the op makes the gradient that is looked at.
  bool is_noise(const Op& op) const {
    return noise && op.microbatch == 0 &&
           (op.kind == OpKind::kBackward || op.kind == OpKind::kWeightGrad);
  }
  int period_of(int microbatch) const { return period == Period::kStep ? 0 : microbatch; }
  // Whether the gradients of `microbatch` are the first of their period.
  bool begins_period(int microbatch) const {
    return period == Period::kMicrobatch || microbatch == 0;
  }
  Stage stage_of(int unit) const;
  Coord coord_of(int segment) const;
  bool holds(Coord coord, int segment) const { return coord_of(segment) == coord; }
  // Whether one pipeline rank holds both ends of a tied weight: they have one optimizer state
  // there, and the head's update takes the weight over from the embedding's.
  bool shares_state() const { return tied && coord_of(0) == coord_of(head()); }
  bool operator==(const StepShape&) const = default;
};

struct Program {
  StepShape step;
  std::vector<std::vector<Op>> lists;  // one per pipeline rank
  std::vector<Transfer> transfers;     // ascending by (is_grad, unit, microbatch)

  const std::vector<Op>& list(Coord coord) const { return lists[coord.value]; }
  // The transfer of that tensor, or -1 when both ends are on one pipeline rank.
  std::int32_t find_transfer(bool is_grad, int unit, int microbatch) const;
  bool operator==(const Program&) const = default;
};

}  // namespace lockstep::program
