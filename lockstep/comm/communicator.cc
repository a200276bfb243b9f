#include "lockstep/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep::comm {
namespace {

bool same_place(const void* a, const void* b) { return a == b; }

void copy_local(ConstBuffer from, Buffer to) {
  if (same_place(from.data, to.data) || from.count == 0) return;
  LS_CHECK(from.device.kind == DeviceKind::kCpu,
           "a group of one on a device copies through its backend");
  std::memcpy(to.data, from.data, static_cast<std::size_t>(from.bytes()));
}

// The two halves of an all_reduce, and the padded copy they worked on when the count did not
// divide.
class AllReduceHalves final : public Pending {
 public:
  AllReduceHalves(Work reduce, Work gather)
      : reduce_(std::move(reduce)), gather_(std::move(gather)) {}
  AllReduceHalves(Work reduce, Work gather, std::vector<std::byte> padded, Buffer target)
      : padded_(std::move(padded)),
        target_(target),
        reduce_(std::move(reduce)),
        gather_(std::move(gather)) {}

  void wait() override {
    const std::optional<Ran> reduced = reduce_.wait(), gathered = gather_.wait();
    if (reduced && gathered) ran_ = {reduced->begin, gathered->end};
    if (!padded_.empty())
      std::memcpy(target_.data, padded_.data(), static_cast<std::size_t>(target_.bytes()));
  }
  std::optional<Ran> ran() const override { return ran_; }

 private:
  std::vector<std::byte> padded_;  // outlives the halves, which are destroyed first
  Buffer target_;
  Work reduce_, gather_;
  std::optional<Ran> ran_;
};

}  // namespace

Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    const Work old = std::move(*this);
    owner_ = other.owner_;
    pending_ = std::move(other.pending_);
  }
  return *this;
}

Work::~Work() {
  if (!pending_) return;
  try {
    owner_->abort("an operation was given up");
    wait();  // ends at once; after it nothing is on the way any more
  } catch (const std::exception&) {
  }
}

std::optional<Ran> Work::wait() {
  if (!pending_) return std::nullopt;
  const std::unique_ptr<Pending> pending = std::move(pending_);
  pending->wait();
  return pending->ran();
}

void Siblings::fail(const CommError& first) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_ = first;
  for (Communicator* member : members_) member->abort(first);
}

void Siblings::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw CommError(*failure_);
}

Siblings::Place::Place(Siblings& siblings, Communicator& communicator)
    : siblings_(siblings), communicator_(communicator) {
  const std::lock_guard lock(siblings_.mutex_);
  siblings_.members_.insert(&communicator_);
  if (siblings_.failure_) communicator_.abort(*siblings_.failure_);
}

Siblings::Place::~Place() {
  const std::lock_guard lock(siblings_.mutex_);
  siblings_.members_.erase(&communicator_);
}

Communicator::Communicator(Membership membership, Ledger& ledger, Siblings& siblings)
    : membership_(std::move(membership)), ledger_(ledger), siblings_(siblings) {}

void Communicator::count(OpKind op, std::int64_t bytes) {
  ledger_.count(membership_.axis, op, Bytes{bytes});
}

Work Communicator::all_gather(ConstBuffer in, Buffer out, Deadline deadline) {
  LS_CHECK(in.dtype == out.dtype && in.count * size() == out.count, describe(), ": all_gather of ",
           in.count, " ", to_text(in.dtype), " into ", out.count, " ", to_text(out.dtype));
  throw_if_poisoned(OpKind::kAllGather);
  count(OpKind::kAllGather, in.bytes() * (size() - 1));
  if (size() == 1) return copy_local(in, out), Work();
  if (in.count == 0) return {};
  return start_all_gather(in, out, deadline);
}

Work Communicator::reduce_scatter(ConstBuffer in, Buffer out, Deadline deadline) {
  LS_CHECK(in.dtype == out.dtype && out.count * size() == in.count && can_sum(in.dtype), describe(),
           ": reduce_scatter of ", in.count, " ", to_text(in.dtype), " into ", out.count, " ",
           to_text(out.dtype));
  throw_if_poisoned(OpKind::kReduceScatter);
  count(OpKind::kReduceScatter, out.bytes() * (size() - 1));
  if (size() == 1) return copy_local(in, out), Work();
  if (in.count == 0) return {};
  return start_reduce_scatter(in, out, deadline);
}

Work Communicator::all_reduce(Buffer data, Deadline deadline) {
  LS_CHECK(can_sum(data.dtype), describe(), ": all_reduce of ", to_text(data.dtype));
  throw_if_poisoned(OpKind::kAllReduce);
  const std::int64_t piece = (data.count + size() - 1) / size();
  const auto width = static_cast<std::int64_t>(size_of(data.dtype));
  count(OpKind::kAllReduce, 2 * piece * width * (size() - 1));
  if (size() == 1 || data.count == 0) return {};

  if (piece * size() == data.count) {
    const Buffer own = data.slice(piece * index(), piece);
    Work reduce = start_reduce_scatter(data, own, deadline);
    Work gather = start_all_gather(own, data, deadline);
    return {*this, std::make_unique<AllReduceHalves>(std::move(reduce), std::move(gather))};
  }
  LS_CHECK(data.device.kind == DeviceKind::kCpu, describe(), ": all_reduce of ", data.count,
           " elements on a device; pad it to a multiple of ", size());
  std::vector<std::byte> scratch(static_cast<std::size_t>(piece * size() * width));
  std::memcpy(scratch.data(), data.data, static_cast<std::size_t>(data.bytes()));
  const Buffer padded{scratch.data(), piece * size(), data.dtype, data.device};
  const Buffer own = padded.slice(piece * index(), piece);
  Work reduce = start_reduce_scatter(padded, own, deadline);
  Work gather = start_all_gather(own, padded, deadline);
  // Moving a vector keeps its memory where it is, so the buffers in flight stay valid.
  std::memset(data.data, 0xff,
              static_cast<std::size_t>(data.bytes()));  // undefined until waited for: make it show
  return {*this, std::make_unique<AllReduceHalves>(std::move(reduce), std::move(gather),
                                                   std::move(scratch), data)};
}

Work Communicator::all_to_all(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                              std::span<const std::int64_t> recv_counts, Deadline deadline) {
  const auto total = [](std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const auto members = static_cast<std::size_t>(size());
  LS_CHECK(in.dtype == out.dtype && send_counts.size() == members &&
               recv_counts.size() == members && total(send_counts) == in.count &&
               total(recv_counts) == out.count &&
               send_counts[static_cast<std::size_t>(index())] ==
                   recv_counts[static_cast<std::size_t>(index())],
           describe(), ": all_to_all of ", in.count, " ", to_text(in.dtype), " into ", out.count,
           " ", to_text(out.dtype), " with counts that do not add up");
  throw_if_poisoned(OpKind::kAllToAll);
  const auto width = static_cast<std::int64_t>(size_of(in.dtype));
  count(OpKind::kAllToAll, (in.count - send_counts[static_cast<std::size_t>(index())]) * width);
  if (size() == 1) return copy_local(in, out), Work();
  return start_all_to_all(in, {send_counts.begin(), send_counts.end()}, out,
                          {recv_counts.begin(), recv_counts.end()}, deadline);
}

Work Communicator::send(ConstBuffer data, int to, int tag, Deadline deadline) {
  LS_CHECK(to >= 0 && to < size() && to != index() && tag >= 0 && tag < (1 << 30), describe(),
           ": send to ", to, " with tag ", tag);
  throw_if_poisoned(OpKind::kSend);
  count(OpKind::kSend, data.bytes());
  if (data.count == 0) return {};
  return start_send(data, to, tag, deadline);
}

Work Communicator::recv(Buffer data, int from, int tag, Deadline deadline) {
  LS_CHECK(from >= 0 && from < size() && from != index() && tag >= 0 && tag < (1 << 30), describe(),
           ": recv from ", from, " with tag ", tag);
  throw_if_poisoned(OpKind::kRecv);
  count(OpKind::kRecv, 0);
  if (data.count == 0) return {};
  return start_recv(data, from, tag, deadline);
}

Work Communicator::broadcast(Buffer data, int root, Deadline deadline) {
  LS_CHECK(root >= 0 && root < size(), describe(), ": broadcast from ", root);
  throw_if_poisoned(OpKind::kBroadcast);
  count(OpKind::kBroadcast, root == index() ? data.bytes() * (size() - 1) : 0);
  if (size() == 1 || data.count == 0) return {};
  return start_broadcast(data, root, deadline);
}

Work Communicator::barrier(Deadline deadline) {
  throw_if_poisoned(OpKind::kBarrier);
  count(OpKind::kBarrier, 0);
  if (size() == 1) return {};
  return start_barrier(deadline);
}

void Communicator::abort(const std::string& reason) {
  const Error error = {Code::kPoisoned, describe() + " was aborted: " + reason, ""};
  this->abort(CommError(error, OpKind::kBarrier, {}));
}

void Communicator::abort(const CommError& reason) {
  remember(reason);
  start_abort(reason);
}

std::string Communicator::describe() const {
  return backend_name() + " group " + membership_.name + ", member " + std::to_string(index()) +
         " of " + std::to_string(size());
}

void Communicator::remember(const CommError& first) {
  std::lock_guard lock(poison_mutex_);
  if (!first_failure_) first_failure_ = first;
  poisoned_ = true;
}

void Communicator::poison(const CommError& first) {
  remember(first);
  siblings_.fail(first);
}

void Communicator::throw_first_failure(OpKind op) const {
  std::lock_guard lock(poison_mutex_);
  Error error = first_failure_->error();
  error.message = std::string(to_text(op)) + " on " + describe() + ": " + error.message;
  throw CommError(std::move(error), op, first_failure_->culprit());
}

void Communicator::throw_if_poisoned(OpKind op) const {
  if (!poisoned_) return;
  std::lock_guard lock(poison_mutex_);
  throw CommError(
      {Code::kPoisoned,
       std::string(to_text(op)) + " on " + describe() +
           " after an earlier failure: " + first_failure_->error().message,
       "a communicator cannot be used after a failure; restart from the last checkpoint"},
      op, first_failure_->culprit());
}

std::unique_ptr<Communicator> World::connect_all(std::string name, std::string axis,
                                                 Deadline deadline) {
  std::vector<Rank> everyone;
  for (int rank = 0; rank < size(); ++rank) everyone.push_back({rank});
  return connect(std::move(name), std::move(axis), std::move(everyone), deadline);
}

Membership World::membership(std::string name, std::string axis, std::vector<Rank> members) const {
  const auto found = std::ranges::find(members, rank());
  LS_CHECK(found != members.end(), "rank ", rank().value, " connects group ", name,
           " it is not a member of");
  for (const Rank member : members)
    LS_CHECK(member.value >= 0 && member.value < size(), "group ", name, " names rank ",
             member.value);
  const int index = static_cast<int>(found - members.begin());
  return {std::move(name), std::move(axis), std::move(members), index};
}

}  // namespace lockstep::comm
