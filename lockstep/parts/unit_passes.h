// The passes of a unit on one rank, as lists, and what they do to memory and to the groups that
// share it or its sequences: what the memory walk and the ledger's prediction read. With t tensor
// ranks, in volumes of T h elements sent (t - 1) / t times, a dense block's microbatch costs
//
//   tensor parallelism alone                               8
//   and sequence parallelism, backward pass whole         10
//   and sequence parallelism, W put off                   12
//
// Korthikanti et al. (arXiv 2205.05198, section 4.2.2) count 8 for the second too, and apart from
// them the rows that the weights' gradients gather again: those of both norms in 10, those of both
// output gradients as well in 12. A recomputed block adds what its forward pass has before its last
// sum; where a norm is behind that, it too. A norm over all heads of a token sums a number of each
// token over the ranks, for queries and for keys, once forward and once backward.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/arch.h"
#include "lockstep/parts/builder.h"
#include "lockstep/parts/place.h"

namespace lockstep::parts {

enum class UnitPass : std::uint8_t {
  kForward,     // keeps the stash; the head only takes its input over
  kCheckpoint,  // forward, keeps the input alone
  kEvaluate,    // forward, keeps nothing; the head computes the loss
  kRecompute,   // stash from the input (blocks)
  kInputGrad,   // stash and gradient of the output become weight work and gradient of the input
  kWeightGrad,  // uses the weight work up
  kBackward,    // both in one list, each weight's gradient as soon as what it reads is there; of
                // the head also the loss
  // The same where gradients are the first of their period: all of W behind I, because their buffer
  // is taken where W begins (not of the head).
  kFirstBackward,
  // Forward over tokens that continue sequences, keeps nothing; the head computes logits. Of units
  // whose sizes say that keys are cached, the only one.
  kGenerate,
};
inline constexpr EnumNames<UnitPass, 9> kUnitPasses = {{"forward", "checkpoint", "evaluate",
                                                        "recompute", "input_grad", "weight_grad",
                                                        "backward", "first_backward", "generate"}};

struct MemoryEvent {
  std::string name;
  std::int64_t bytes = 0;  // above zero: taken; below: given back
  bool operator==(const MemoryEvent&) const = default;
};
using MemoryEvents = std::vector<MemoryEvent>;

// The event of no bytes in front of the first part that writes gradients of weights: who runs the
// pass owns their buffer, and may take it as late as here.
inline constexpr std::string_view kGradients = "gradients";

// Most bytes live during the events, above what was live before them; at least 0. `gradients` are
// taken at kGradients.
std::int64_t extra(const MemoryEvents& events, std::int64_t gradients = 0);

struct Collective {
  Kind kind = Kind::kAllGather;
  std::string name;        // what is gathered or exchanged, or becomes the sum
  std::int64_t bytes = 0;  // collective_bytes()
  Group group = Group::kTensor;
  std::int64_t ranks = 1;  // of the group
  bool operator==(const Collective&) const = default;
};

// Bytes that one of the ranks sends, as its ledger counts them.
std::int64_t sent(const Collective& collective);
std::int64_t sent(const std::vector<Collective>& collectives);

// What crosses from one pass to another: a storage, called as its content, or, where several slices
// of it do, as what it was taken for.
struct Held {
  std::string name;
  std::int64_t bytes = 0;
  bool operator==(const Held&) const = default;
};
std::int64_t total(const std::vector<Held>& held);

// Derived once; answers are kept. Plain data afterwards: any thread may read it.
class UnitPasses {
 public:
  // REQUIRES: model::check_unit_bytes(config).ok(), a tp that divides the unit.
  UnitPasses(const model::ModelConfig& config, const model::Unit& unit,
             const model::UnitSizes& sizes);

  // The same where this rank's experts met so many rows.
  UnitPasses where_met(const model::RowsMet& rows) const;

  bool has(UnitPass pass) const { return passes_[static_cast<std::size_t>(pass)].has_value(); }
  // REQUIRES of all three: a pass that the unit has.
  const Pass& at(UnitPass pass) const;
  // Every storage that is taken and given back, in order. A pass starts from what is live before it
  // (input or stash, gradient of the output, weights), and its events include the release of what
  // it uses up. Gradient buffers of weights are not part of it (kGradients).
  const MemoryEvents& events(UnitPass pass) const;
  // None when tp and cp are 1.
  const std::vector<Collective>& collectives(UnitPass pass) const;
  // "the all_reduce of middle": what runs, or is waited for, when `behind` parts are behind, or
  // "nothing"; and the group of a collective.
  struct Meeting {
    std::string text;
    Group group;
  };
  Meeting meeting(UnitPass pass, int behind) const;

  // What a forward pass keeps for its backward pass, its input first. Bytes per token of a block in
  // bf16, nothing dropped:
  //
  //   8h + 4q + 4k + 2g + 2f + 4a, and what the two norms know of each row.
  const std::vector<Held>& stash() const { return stash_; }
  // What W needs: operands of the weights' products, finished gradients of norms and biases.
  const std::vector<Held>& work() const { return work_; }

  const Values& values() const { return values_; }
  const Sizes& sizes() const { return sizes_; }

 private:
  struct Made {
    Pass pass;
    MemoryEvents events;
    std::vector<Collective> collectives;
  };

  void derive(Written forward, const model::Drop& drop, bool is_block);
  void hold();  // writes stash_ and work_
  void write_head(const model::ModelConfig& config);
  void write_generation(Written forward);
  void add(UnitPass pass, Pass made);
  const Made& made(UnitPass pass) const;
  std::vector<Held> held(const Pass& maker, const std::vector<ValueId>& ids) const;

  Sizes sizes_;
  Values values_;
  std::array<std::optional<Made>, 9> passes_;
  std::vector<ValueId> stash_ids_, work_ids_;
  std::vector<Held> stash_, work_;
};

}  // namespace lockstep::parts
