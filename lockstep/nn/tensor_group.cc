#include "lockstep/nn/tensor_group.h"

#include <ATen/ops/empty.h>

#include <vector>

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

at::Tensor TensorGroup::gather_rows(const at::Tensor& path) const {
  if (!shares_rows_) return path;
  at::Tensor all = at::empty({path.size(0) * size(), path.size(1)}, path.options());
  comm_->all_gather(as_buffer(path), as_buffer(all), Deadline::after(op_deadline_)).wait();
  return all;
}

at::Tensor TensorGroup::reduce_rows(at::Tensor summand) const {
  if (comm_ == nullptr) return summand;
  if (!shares_rows_) {
    sum(summand);
    return summand;
  }
  at::Tensor rows = at::empty({local_rows(summand.size(0)), summand.size(1)}, summand.options());
  comm_->reduce_scatter(as_buffer(summand), as_buffer(rows), Deadline::after(op_deadline_)).wait();
  return rows;
}

void TensorGroup::sum(const at::Tensor& summand) const {
  if (comm_ == nullptr) return;
  comm_->all_reduce(as_buffer(summand), Deadline::after(op_deadline_)).wait();
}

at::Tensor TensorGroup::gather(const at::Tensor& own) const {
  if (comm_ == nullptr) return own.unsqueeze(0);
  std::vector<std::int64_t> sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), size());
  at::Tensor all = at::empty(sizes, own.options());
  comm_->all_gather(as_buffer(own), as_buffer(all), Deadline::after(op_deadline_)).wait();
  return all;
}

}  // namespace lockstep::nn
