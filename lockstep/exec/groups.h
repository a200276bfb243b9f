// The communicators of a program's ops, of one rank.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/program/program.h"

namespace lockstep::exec {

// The axes that the ranks of such a group span; for kTied the pipeline, whose ends they are.
mesh::AxisSet axes_of(program::CommGroup group);

// Connects a rank's own groups and no others, so its cost does not grow with the world. Belongs to
// the rank's thread, must not outlive its world.
//
// On a device the memory of host and device has communicators of its own, and so have gathers,
// reductions, and messages of either direction along the pipeline: NCCL runs all that is issued on
// one communicator in that order, and a gather that is wanted early, or a receive that is posted
// early, would hold up what comes behind it.
class Groups {
 public:
  // What of a model needs groups of its own.
  struct Shared {
    bool tied = false;        // embedding and head share a weight, so the pipeline's ends meet
    bool experts = false;     // held by other ranks than the rest of their units
    std::int64_t copies = 1;  // tensor ranks that hold the same heads of keys (flat_layout.h)
  };
  // Called by every rank of the world. `label` tells apart the groups of several jobs in one world.
  // There is a tensor group only where several ranks share a unit.
  Groups(comm::World& world, const std::string& label, const mesh::Mesh& mesh, const Shared& shared,
         Deadline deadline);

  // The communicators an op of this group uses, one after the other, on memory of the world's
  // device; none for kNone, for a tied weight whose two copies are on this rank, and for a unit
  // that this rank does not share.
  std::vector<comm::Communicator*> of(program::CommGroup group) const;
  // The same on memory of the host. REQUIRES: kPipeline, kData, kTensor or several of them.
  std::vector<comm::Communicator*> on_host(program::CommGroup group) const;
  // Where there is one: of an op that adds up,
  comm::Communicator& one(program::CommGroup group) const;
  // of one that gathers,
  comm::Communicator& gathers(program::CommGroup group) const;
  // of one that adds up among tensor ranks that hold the same heads of keys,
  comm::Communicator& copies() const;
  // and of a message from one pipeline coordinate to another.
  comm::Communicator& link(program::CommGroup group, Coord from, Coord to) const;

  // Of the ranks that share sequences with this one; null where there are no others.
  comm::Communicator* context() const;
  // The same of those that share experts,
  comm::Communicator* experts() const;
  // and of tensor ranks that share each of theirs, where others do not.
  comm::Communicator* expert_tensor() const;

  // Refuses to go on when some rank of the world holds another digest: its program, model or
  // settings differ. Throws WorldError on every rank, naming the first that differs.
  void agree(const Hash128& digest, Deadline deadline) const;

 private:
  bool is_device_ = false;  // device memory is not the host's
  // By kind; null where this rank needs none.
  std::array<std::unique_ptr<comm::Communicator>, 18> all_, host_;
};

}  // namespace lockstep::exec
