#include "lockstep/nn/tensor_group.h"

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::nn {

using tensor::as_buffer;

TensorGroup::TensorGroup(comm::Communicator& comm, bool sequence_parallel, Seconds op_deadline)
    : comm_(comm.size() > 1 ? &comm : nullptr),
      shares_rows_(sequence_parallel && comm.size() > 1),
      op_deadline_(op_deadline) {}

std::int64_t TensorGroup::local_rows(std::int64_t tokens) const {
  if (!shares_rows_) return tokens;
  LS_CHECK(tokens % size() == 0, tokens, " tokens of a microbatch over ", size(), " tensor ranks");
  return tokens / size();
}

comm::Work TensorGroup::all_gather(const at::Tensor& own, const at::Tensor& all) const {
  LS_CHECK(comm_ != nullptr, "a group of one gathers nothing");
  return comm_->all_gather(as_buffer(own), as_buffer(all), Deadline::after(op_deadline_));
}

comm::Work TensorGroup::reduce_scatter(const at::Tensor& whole, const at::Tensor& own) const {
  LS_CHECK(comm_ != nullptr, "a group of one scatters nothing");
  return comm_->reduce_scatter(as_buffer(whole), as_buffer(own), Deadline::after(op_deadline_));
}

comm::Work TensorGroup::sum(const at::Tensor& summand) const {
  if (comm_ == nullptr) return {};
  return comm_->all_reduce(as_buffer(summand), Deadline::after(op_deadline_));
}

}  // namespace lockstep::nn
