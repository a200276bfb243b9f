// What an op of a program sends on one rank, group by group in order: how many ranks take part, what
// they do and how large it is. Traffic is counted and collectives are priced from these.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/arch/arch.h"
#include "lockstep/arch/flat_layout.h"
#include "lockstep/base/ids.h"
#include "lockstep/comm/ledger.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/schedule/program.h"

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
  // REQUIRES: a mesh of as many pipeline coordinates as the program and with sizes.shards ranks in a
  // shard group, sizes.unit.tp in a tensor group, and in that several if step.tensor_parallel says so.
  OpMessages(const schedule::Program& program, const arch::Model& model, const StepSizes& sizes,
             const mesh::Mesh& mesh, Rank rank);

  // Of the op itself, groups of one member included; not what tensor ranks send inside a unit's
  // passes (arch/unit_traffic.h).
  std::vector<Message> of(const schedule::Op& op) const;

  Coord coord() const { return coord_; }
  StateBytes states(int unit) const;

 private:
  struct Party {
    std::string axis;
    std::int64_t size = 1;
  };

  std::vector<Message> all_reduce(const schedule::Op& op, std::int64_t elements,
                                  std::int64_t width) const;
  static Message all_reduce(const Party& party, std::int64_t elements, std::int64_t width);
  std::vector<Message> sum_noise(const schedule::Op& op) const;
  std::vector<Message> reduce_tied(const schedule::Op& op) const;
  std::vector<Message> reduce_part(const schedule::Op& op, int unit,
                                   const arch::FlatRange& range) const;
  std::vector<Message> transfer(comm::OpKind kind, std::int64_t parts) const;
  Party along(mesh::AxisSet axes) const;
  std::vector<Party> parties(schedule::Reach reach) const;
  const arch::FlatLayout& layout(int unit) const;

  const schedule::StepShape& step_;
  const arch::Model& model_;
  const StepSizes& sizes_;
  const mesh::Mesh& mesh_;
  const Coord coord_;
  const std::int64_t shard_;
  const std::vector<arch::FlatLayout> layouts_;
};

}  // namespace lockstep::cost
