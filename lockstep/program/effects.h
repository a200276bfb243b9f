// What an op reads, defines, changes and frees, and where it runs. This function is the only
// meaning of a program: executor, simulator, memory walk, validator and drawer all ask it, and
// none of them holds anything that it does not name.
//
// An asynchronous op (Send, PostRecv, Gather, Publish, Reduce, ReduceAcross, ReduceReplicated)
// returns at issue. What it defines has memory from then on but may be neither read nor changed,
// and what it reads or changes may not be changed, until its Wait, which carries the second half of
// its effects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

enum class ValueKind : std::uint8_t {
  kTokens,      // microbatch
  kAct,         // unit, microbatch: the unit's output
  kCheckpoint,  // unit, microbatch: the input alone of a unit that is recomputed
  kStash,       // unit, microbatch: all its forward pass kept, the input included
  kGrad,        // unit, microbatch: gradient of the unit's output
  kWeightWork,  // unit, microbatch: what W needs
  kParam,       // segment: whole working weights
  kParamShard,  // segment: the owned piece, ZeRO-3
  kMainGrad,    // segment, period: gradient summed over the period's microbatches
  kReduced,     // segment, period: a reduced piece on its way into kGradShard
  kAccGrad,     // segment: ZeRO-0, reduced sum over periods
  kGradShard,   // segment: ZeRO 1-3, owned piece of the reduced sum over periods
  kOptimizer,   // segment: moments, of the owned piece or of all
  kSendBuffer,  // transfer
  kRecvBuffer,  // transfer
  kCount,       // valid tokens of the step
  kLoss,        // exact sum of token losses
  kNorm,        // gradient norm, with the step's loss
  kNoise,       // exact sum of squares of the first microbatch's gradient
};

struct Value {
  ValueKind kind = ValueKind::kTokens;
  std::int32_t a = -1;  // unit, segment, transfer, or the microbatch of kTokens
  std::int32_t b = -1;  // microbatch or period
  auto operator<=>(const Value&) const = default;
};

// Whether it is a number of the rank itself, without memory of its own.
constexpr bool is_number(const Value& value) {
  return value.kind == ValueKind::kCount || value.kind == ValueKind::kLoss ||
         value.kind == ValueKind::kNorm || value.kind == ValueKind::kNoise;
}

std::string to_text(const Value& value);  // "stash(3,1)"

enum class Lane : std::uint8_t { kHost, kCompute, kSend, kRecv, kCollective };

struct Effects {
  std::vector<Value> reads;
  std::vector<Value> defines;  // memory is taken now
  std::vector<Value> mutates;
  std::vector<Value> kills;  // memory is given back or moved into what is defined
  Lane lane = Lane::kHost;
  CommGroup group = CommGroup::kNone;

  void clear();  // keeps the memory of its lists
};

// REQUIRES: a program made by lowering, or one whose indices are in range.
Effects effects(const Program& program, Coord coord, const Op& op);

// The same in place of what `out` held: a loop over many ops need not allocate for each.
void write_effects(const Program& program, Coord coord, const Op& op, Effects& out);

// Whether the op returns before it is done and needs a Wait.
bool is_async(OpKind kind);

// What is live before the first and after the last op of every step on this pipeline rank. kCount
// and kNorm are numbers that end with the step; nothing kills them.
std::vector<Value> persistent(const StepShape& step, Coord coord);

// The value in which the segment's reduced gradient is when Norm reads it.
Value final_grad(const StepShape& step, int segment);

}  // namespace lockstep::program
