// Ranks that share a unit, as its passes see them: collectives on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/model/context.h"

namespace lockstep::nn {

// A handle; copies mean the same group. Used by the thread that issues on the communicator.
class RankGroup {
 public:
  RankGroup() = default;  // one rank
  // `comm` must outlive the group and its copies. A collective fails when it takes longer than
  // `op_deadline` (comm::CommError).
  RankGroup(comm::Communicator& comm, Seconds op_deadline);

  std::int64_t size() const { return comm_ == nullptr ? 1 : comm_->size(); }
  std::int64_t index() const { return comm_ == nullptr ? 0 : comm_->index(); }

  // Tensors must outlive the Work. REQUIRES of all: contiguous, of one shape on all members, `all`
  // and `whole` of size() times the elements. Of a group of one: nothing is to be moved, and only
  // sum() may be called.
  comm::Work all_gather(const at::Tensor& own, const at::Tensor& all) const;
  comm::Work reduce_scatter(const at::Tensor& whole, const at::Tensor& own) const;
  comm::Work sum(const at::Tensor& summand) const;  // in place
  // `other` becomes `own` of the member `distance` before this one, counted around.
  comm::Work exchange(const at::Tensor& own, const at::Tensor& other, std::int64_t distance) const;
  // Piece i of `pieces` becomes piece index() of member i's `others`; all are of one size.
  comm::Work all_to_all(const at::Tensor& pieces, const at::Tensor& others) const;
  // The same with pieces of `sends` and `receives` rows.
  comm::Work all_to_all(const at::Tensor& rows, std::vector<std::int64_t> sends,
                        const at::Tensor& others, std::vector<std::int64_t> receives) const;

 private:
  comm::Communicator* comm_ = nullptr;  // null: a group of one
  Seconds op_deadline_;
};

// The ranks that share experts.
class ExpertGroup : public RankGroup {
 public:
  using RankGroup::RankGroup;
  // Tensor ranks that share an expert, where others do not.
  RankGroup tensor;
};

// The ranks that share sequences (model/context.h).
class ContextGroup : public RankGroup {
 public:
  using RankGroup::RankGroup;
  model::ContextPlace place() const { return {size(), index()}; }
};

}  // namespace lockstep::nn
