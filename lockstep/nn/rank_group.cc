#include "lockstep/nn/rank_group.h"

#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/tensor/as_buffer.h"

namespace lockstep::nn {

using tensor::as_buffer;

RankGroup::RankGroup(comm::Communicator& comm, Seconds op_deadline)
    : comm_(comm.size() > 1 ? &comm : nullptr), op_deadline_(op_deadline) {}

comm::Work RankGroup::all_gather(const at::Tensor& own, const at::Tensor& all) const {
  LS_CHECK(comm_ != nullptr, "a group of one gathers nothing");
  return comm_->all_gather(as_buffer(own), as_buffer(all), Deadline::after(op_deadline_));
}

comm::Work RankGroup::reduce_scatter(const at::Tensor& whole, const at::Tensor& own) const {
  LS_CHECK(comm_ != nullptr, "a group of one scatters nothing");
  return comm_->reduce_scatter(as_buffer(whole), as_buffer(own), Deadline::after(op_deadline_));
}

comm::Work RankGroup::sum(const at::Tensor& summand) const {
  if (comm_ == nullptr) return {};
  return comm_->all_reduce(as_buffer(summand), Deadline::after(op_deadline_));
}

comm::Work RankGroup::exchange(const at::Tensor& own, const at::Tensor& other,
                               std::int64_t distance) const {
  LS_CHECK(comm_ != nullptr, "a group of one exchanges nothing");
  std::vector<std::int64_t> sends(comm_->size(), 0), receives(comm_->size(), 0);
  sends[(index() + distance) % size()] = own.numel();
  receives[(index() + size() - distance) % size()] = other.numel();
  return comm_->all_to_all(as_buffer(own), sends, as_buffer(other), receives,
                           Deadline::after(op_deadline_));
}

comm::Work RankGroup::all_to_all(const at::Tensor& pieces, const at::Tensor& others) const {
  LS_CHECK(comm_ != nullptr, "a group of one exchanges nothing");
  const std::vector<std::int64_t> counts(comm_->size(), pieces.numel() / size());
  return comm_->all_to_all(as_buffer(pieces), counts, as_buffer(others), counts,
                           Deadline::after(op_deadline_));
}

comm::Work RankGroup::all_to_all(const at::Tensor& rows, std::vector<std::int64_t> sends,
                                 const at::Tensor& others,
                                 std::vector<std::int64_t> receives) const {
  LS_CHECK(comm_ != nullptr, "a group of one exchanges nothing");
  const std::int64_t columns = rows.dim() > 1 ? rows.size(1) : 1;
  for (auto* counts : {&sends, &receives})
    for (std::int64_t& count : *counts) count *= columns;
  return comm_->all_to_all(as_buffer(rows), sends, as_buffer(others), receives,
                           Deadline::after(op_deadline_));
}

}  // namespace lockstep::nn
