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

#include <cstdint>

#include "lockstep/nn/rank_group.h"

namespace lockstep::nn {

class TensorGroup : public RankGroup {
 public:
  TensorGroup() = default;  // one rank
  // `copies`: those of its ranks that hold the same heads of keys.
  TensorGroup(comm::Communicator& comm, bool sequence_parallel, Seconds op_deadline,
              comm::Communicator* copies = nullptr);

  bool shares_rows() const { return shares_rows_; }  // sequence parallelism over more than one rank

  // The path's rows of T tokens on this rank. REQUIRES: under sequence parallelism, size() divides
  // T.
  std::int64_t local_rows(std::int64_t tokens) const;

  comm::Work sum_copies(const at::Tensor& summand) const;  // in place

 private:
  RankGroup copies_;
  bool shares_rows_ = false;
};

}  // namespace lockstep::nn
