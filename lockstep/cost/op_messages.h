// What an op of a program sends on one rank, group by group in order: how many ranks take part,
// what they do and how large it is. Traffic is counted and collectives are priced from these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/comm/ledger.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/flat_layout.h"
#include "lockstep/program/program.h"

namespace lockstep::cost {

struct Message {
  std::string axis;  // as mesh::to_text names it; "tied" for the two ranks that share a weight
  std::int64_t members = 1;  // of the group
  comm::OpKind kind = comm::OpKind::kBarrier;
  std::int64_t bytes = 0;  // of the buffer that all members fill, padded; of a transfer, its tensor
  std::int64_t sent = 0;   // by this rank, as its ledger counts
};

// Belongs to one thread. All arguments must outlive it.
class OpMessages {
 public:
  // REQUIRES: a mesh of as many pipeline coordinates as the program and with sizes.shards ranks in
  // a shard group, sizes.unit.tp in a tensor group, and in that several if step.tensor_parallel
  // says so.
  OpMessages(const program::Program& program, const model::Model& model, const StepSizes& sizes,
             const mesh::Mesh& mesh, Rank rank);

  // Of the op itself, groups of one member included; not what tensor ranks send inside a unit's
  // passes (parts/unit_passes.h).
  std::vector<Message> of(const program::Op& op) const;

  Coord coord() const { return coord_; }
  StateBytes states(int segment) const;
  double owned_elements() const;  // that the rank updates, of all its units

 private:
  struct Party {
    std::string axis;
    std::int64_t size = 1;
  };

  std::vector<Message> all_reduce(const program::Op& op, std::int64_t elements,
                                  std::int64_t width) const;
  static Message all_reduce(const Party& party, std::int64_t elements, std::int64_t width);
  std::vector<Message> sum_noise(const program::Op& op) const;
  std::vector<Message> reduce_tied(const program::Op& op) const;
  std::vector<Message> reduce_part(const program::Op& op, int segment,
                                   const model::FlatRange& range) const;
  // And what several tensor ranks hold of the same heads, as far as `held` goes.
  std::vector<Message> with_copies(std::vector<Message> all, int segment,
                                   const model::FlatRange& held) const;
  model::FlatRange own(int segment) const;  // the piece of the gradient that this rank reduces
  std::vector<Message> transfer(comm::OpKind kind, std::int64_t parts) const;
  Party along(mesh::AxisSet axes) const;
  std::vector<Party> parties(program::CommGroup group) const;
  const model::FlatLayout& layout(int segment) const;

  const program::StepShape& step_;
  const model::Model& model_;
  const StepSizes& sizes_;
  const mesh::Mesh& mesh_;
  const Coord coord_;
  const std::int64_t shard_, expert_shard_;
  const std::vector<model::FlatLayout> layouts_;
};

}  // namespace lockstep::cost
