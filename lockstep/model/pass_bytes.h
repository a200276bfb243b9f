// What happens to memory inside the passes of a unit: every tensor that is taken and given back, in
// order. A pass's worst moment is found by replaying its events, never guessed.
//
// A pass starts from what is live before it (input or stash, gradient of the output, weights), and
// its events include the release of what it uses up. Gradient buffers of weights are not part of
// it: who runs the pass owns them. Exact for f32 and f64 on a CPU; in bf16, oneDNN's matrix
// products, also those inside attention's backward pass, take scratch of their own that has no
// closed form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/unit_bytes.h"

namespace lockstep::model {

enum class UnitPass : std::uint8_t {
  kForward,         // keeps the stash; the head only takes its input over
  kCheckpoint,      // forward, keeps the input alone
  kEvaluate,        // forward, keeps nothing; the head computes the loss
  kRecompute,       // stash from the input (blocks)
  kInputGrad,       // stash and gradient of the output become weight work and gradient of the input
  kWeightGrad,      // uses the weight work up
  kBackwardInput,   // the last two when the second follows at once: rows that tensor ranks have
  kBackwardWeight,  // gathered for the first stay for the second
  kHeadGrad,        // loss and gradients of the head, the weights' included
};

struct MemoryEvent {
  std::string name;
  std::int64_t bytes = 0;  // above zero: taken; below: given back
  bool operator==(const MemoryEvent&) const = default;
};

using MemoryEvents = std::vector<MemoryEvent>;

// Most bytes live during the events, above what was live before them; at least 0.
std::int64_t extra(const MemoryEvents& events);

// Empty for a pass that takes and gives back nothing. REQUIRES: check_unit_bytes(config,
// sizes.seq).ok(), a tp that divides the unit, a pass that the unit has.
MemoryEvents pass_events(const ModelConfig& config, const Unit& unit, const UnitSizes& sizes,
                         UnitPass pass);

}  // namespace lockstep::model
