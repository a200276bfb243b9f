// What holds the values of one rank and computes on them. The executor says what to do, in program
// order; the workspace does it at once, on the executor's thread. Runtime implements it on tensors;
// tests and benchmarks implement it on plain memory with computation of a given length.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/base/exact_sum.h"
#include "lockstep/program/effects.h"

namespace lockstep::exec {

// What Norm adds up over the world. Exact sums, so neither order nor layout changes a bit.
struct StepSums {
  ExactSum squares;         // of reduced gradients; every parameter once in the world
  ExactSum loss;            // of token losses
  std::int64_t tokens = 0;  // that took part in the loss
  std::int64_t stops = 0;   // ranks that want to stop after this step
  // Where units have routed experts and gradients are computed: of the losses of their routers,
  // summed over tokens and units, without coefficients; and the tokens that each expert met, unit
  // by unit, StepShape::routed numbers of each that has some.
  ExactSum aux_loss, z_loss;
  std::vector<std::int64_t> expert_tokens;
  // Where the program has noise, of the step's first microbatch alone:
  ExactSum noise_squares;         // of its part of the gradient, before any reduction over data
  std::int64_t noise_tokens = 0;  // of it that took part in the loss
  // Where the program has checks:
  std::int64_t faults = 0;    // pieces of state that are not what their rank left
  std::uint64_t residue = 0;  // modulo 2^64; 0 where all replicas agree
  bool is_sound() const { return faults == 0 && residue == 0; }
};

class Workspace {
 public:
  virtual ~Workspace() = default;

  virtual bool holds(const program::Value& value) const = 0;
  // Takes memory for a value; contents undefined.
  virtual Buffer create(const program::Value& value) = 0;
  // Memory of a value it holds.
  virtual Buffer buffer(const program::Value& value) = 0;
  virtual void drop(const program::Value& value) = 0;
  // The memory of `from` becomes `to`.
  virtual void move(const program::Value& from, const program::Value& to) = 0;
  // Element by element, `into` += `from`, and `into` = `from`.
  virtual void add(Buffer from, Buffer into) = 0;
  virtual void copy(Buffer from, Buffer into) = 0;

  // Load, F, R, B, I, W, Update: reads, defines, changes and drops exactly what `effects` says.
  virtual void compute(const program::Op& op, const program::Effects& effects) = 0;

  // The part of the shared weight in this rank's reduced gradient of `unit`; may be empty.
  virtual Buffer tied_part(int unit) = 0;
  // The part of replicated parameters in this rank's reduced gradient of a segment; may be empty,
  // and is then so on all ranks of the tensor group.
  virtual Buffer replicated_part(int segment) = 0;
  // The same of what only some tensor ranks hold alike, Groups::copies().
  virtual std::vector<Buffer> copied_parts(int segment) = 0;
  // The piece of a segment's parameters that this rank updates, inside the whole (ZeRO 1 and 2).
  virtual Buffer own_part(int segment) = 0;

  // Valid tokens of this rank's microbatches of the step; then the world's.
  virtual std::int64_t valid_tokens() = 0;
  virtual void set_count(std::int64_t tokens) = 0;
  // This rank's summands; then the world's sums, which Update obeys.
  virtual StepSums sums() = 0;
  virtual void set_sums(const StepSums& sums) = 0;
};

}  // namespace lockstep::exec
