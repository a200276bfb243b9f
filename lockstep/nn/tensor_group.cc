#include "lockstep/nn/tensor_group.h"

#include "lockstep/base/check.h"

namespace lockstep::nn {

TensorGroup::TensorGroup(comm::Communicator& comm, bool sequence_parallel, Seconds op_deadline,
                         comm::Communicator* copies)
    : RankGroup(comm, op_deadline),
      copies_(copies == nullptr ? RankGroup() : RankGroup(*copies, op_deadline)),
      shares_rows_(sequence_parallel && comm.size() > 1) {}

std::int64_t TensorGroup::local_rows(std::int64_t tokens) const {
  if (!shares_rows_) return tokens;
  LS_CHECK(tokens % size() == 0, tokens, " tokens of a microbatch over ", size(), " tensor ranks");
  return tokens / size();
}

comm::Work TensorGroup::sum_copies(const at::Tensor& summand) const {
  LS_CHECK(copies_.size() > 1, "every tensor rank has heads of keys of its own");
  return copies_.sum(summand);
}

}  // namespace lockstep::nn
