// The ranks that share a unit, as its passes see them: tensor parallelism (Shoeybi et al., arXiv
// 1909.08053) and on top of it sequence parallelism (Korthikanti et al., arXiv 2205.05198).
//
// Parts of a unit are cut by heads, MLP columns or vocabulary. Such a part reads the rows of all T
// tokens and ends in a product [T, h] of which every rank holds one summand. The path between the
// parts (norms, residual sums, what units hand on) has all T rows on every rank, or under sequence
// parallelism T / t of them: rank i has rows [i T / t, (i + 1) T / t).
//
//                                          tensor parallel    sequence parallel too
//   gather_rows: path to part, [T, h]      nothing            all_gather of rows
//   reduce_rows: summands [T, h] to path   all_reduce         reduce_scatter of rows
//
// Each is the other's gradient; lists have the first words, parts/lower.h puts collectives in their
// place. In Megatron they are copy_to_tensor_model_parallel_region and reduce_from_..., with
// sequence parallelism gather_from_sequence_parallel_region and reduce_scatter_to_...
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "lockstep/base/units.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::nn {

// A handle; copies mean the same group. Used by the thread that issues on the communicator.
class TensorGroup {
 public:
  TensorGroup() = default;  // one rank
  // `comm` must outlive the group and its copies. A collective fails when it takes longer than
  // `op_deadline` (comm::CommError).
  TensorGroup(comm::Communicator& comm, bool sequence_parallel, Seconds op_deadline);

  std::int64_t size() const { return comm_ == nullptr ? 1 : comm_->size(); }
  std::int64_t index() const { return comm_ == nullptr ? 0 : comm_->index(); }
  bool shares_rows() const { return shares_rows_; }  // sequence parallelism over more than one rank

  // The path's rows of T tokens on this rank. REQUIRES: under sequence parallelism, size() divides
  // T.
  std::int64_t local_rows(std::int64_t tokens) const;

  // Tensors must outlive the Work. REQUIRES of all: contiguous, of one shape on all members, `all`
  // and `whole` of t times the elements. Of a group of one: nothing is to be moved, and only sum()
  // may be called.
  comm::Work all_gather(const at::Tensor& own, const at::Tensor& all) const;
  comm::Work reduce_scatter(const at::Tensor& whole, const at::Tensor& own) const;
  comm::Work sum(const at::Tensor& summand) const;  // in place

 private:
  comm::Communicator* comm_ = nullptr;  // null: a group of one
  bool shares_rows_ = false;
  Seconds op_deadline_;
};

}  // namespace lockstep::nn
