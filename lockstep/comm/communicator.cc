#include "lockstep/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/base/check.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep::comm {
Work& Work::operator=(Work&& other) noexcept {
  if (this != &other) {
    const Work old = std::move(*this);
    owner_ = other.owner_;
    finish_ = std::exchange(other.finish_, nullptr);
  }
  return *this;
}

Work::~Work() {
  if (!finish_) return;
  try {
    owner_->abort("an operation was given up");
    wait();  // ends at once; after it nothing is on the way any more
  } catch (const std::exception&) {
  }
}

std::optional<Ran> Work::wait() {
  const Finish finish = std::exchange(finish_, nullptr);
  return finish ? finish() : std::nullopt;
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

Work Communicator::issue(const Operation& operation, std::int64_t sent) {
  throw_if_poisoned(operation.kind);
  ledger_.count(membership_.axis, operation.kind, Bytes{sent});
  const ConstBuffer in = operation.in;
  const Buffer out = operation.out;
  if (size() == 1) {
    if (in.count == 0 || out.count == 0 || in.data == out.data) return {};
    if (in.device.kind != DeviceKind::kCpu) return start(operation);
    std::memcpy(out.data, in.data, in.bytes());
    return {};
  }
  // Members that have nothing to exchange still take part while others do.
  const bool needs_all = operation.kind == OpKind::kBarrier || operation.kind == OpKind::kAllToAll;
  if (in.count == 0 && out.count == 0 && !needs_all) return {};
  return start(operation);
}

Work Communicator::all_gather(ConstBuffer in, Buffer out, Deadline deadline) {
  LS_CHECK(in.dtype == out.dtype && in.count * size() == out.count, describe(), ": all_gather of ",
           in.count, " ", to_text(in.dtype), " into ", out.count, " ", to_text(out.dtype));
  return issue({OpKind::kAllGather, in, out, deadline}, in.bytes() * (size() - 1));
}

Work Communicator::reduce_scatter(ConstBuffer in, Buffer out, Deadline deadline) {
  LS_CHECK(in.dtype == out.dtype && out.count * size() == in.count && can_sum(in.dtype), describe(),
           ": reduce_scatter of ", in.count, " ", to_text(in.dtype), " into ", out.count, " ",
           to_text(out.dtype));
  return issue({OpKind::kReduceScatter, in, out, deadline}, out.bytes() * (size() - 1));
}

Work Communicator::all_reduce(Buffer data, Deadline deadline) {
  LS_CHECK(can_sum(data.dtype), describe(), ": all_reduce of ", to_text(data.dtype));
  throw_if_poisoned(OpKind::kAllReduce);
  const std::int64_t piece = (data.count + size() - 1) / size();
  const auto width = static_cast<std::int64_t>(size_of(data.dtype));
  ledger_.count(membership_.axis, OpKind::kAllReduce, Bytes{2 * piece * width * (size() - 1)});
  if (size() == 1 || data.count == 0) return {};
  if (data.device.kind != DeviceKind::kCpu)
    return start({OpKind::kAllReduce, data, data, deadline});

  struct Halves {
    std::vector<std::byte> scratch;  // outlives the halves, which are destroyed first
    Work reduce, gather;
  };
  const auto halves = std::make_shared<Halves>();
  Buffer padded = data;
  if (piece * size() != data.count) {
    halves->scratch.resize(piece * size() * width);
    padded = {halves->scratch.data(), piece * size(), data.dtype, data.device};
    std::memcpy(padded.data, data.data, data.bytes());
    std::memset(data.data, 0xff, data.bytes());  // undefined until waited for: make it show
  }
  const Buffer own = padded.slice(piece * index(), piece);
  halves->reduce = start({OpKind::kReduceScatter, padded, own, deadline});
  halves->gather = start({OpKind::kAllGather, own, padded, deadline});
  return {*this, [halves, data]() -> std::optional<Ran> {
            const std::optional<Ran> reduced = halves->reduce.wait();
            const std::optional<Ran> gathered = halves->gather.wait();
            if (!halves->scratch.empty())
              std::memcpy(data.data, halves->scratch.data(), data.bytes());
            if (!reduced || !gathered) return std::nullopt;
            return Ran{reduced->begin, gathered->end};
          }};
}

Work Communicator::all_to_all(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                              std::span<const std::int64_t> recv_counts, Deadline deadline) {
  const auto total = [](std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const auto members = static_cast<std::size_t>(size()), self = static_cast<std::size_t>(index());
  LS_CHECK(in.dtype == out.dtype && send_counts.size() == members &&
               recv_counts.size() == members && total(send_counts) == in.count &&
               total(recv_counts) == out.count && send_counts[self] == recv_counts[self],
           describe(), ": all_to_all of ", in.count, " ", to_text(in.dtype), " into ", out.count,
           " ", to_text(out.dtype), " with counts that do not add up");
  const auto width = static_cast<std::int64_t>(size_of(in.dtype));
  return issue({.kind = OpKind::kAllToAll,
                .in = in,
                .out = out,
                .deadline = deadline,
                .send_counts = {send_counts.begin(), send_counts.end()},
                .recv_counts = {recv_counts.begin(), recv_counts.end()}},
               (in.count - send_counts[self]) * width);
}

Work Communicator::send(ConstBuffer data, int to, int tag, Deadline deadline) {
  LS_CHECK(to >= 0 && to < size() && to != index() && tag >= 0 && tag < (1 << 30), describe(),
           ": send to ", to, " with tag ", tag);
  return issue({OpKind::kSend, data, {}, deadline, to, tag}, data.bytes());
}

Work Communicator::recv(Buffer data, int from, int tag, Deadline deadline) {
  LS_CHECK(from >= 0 && from < size() && from != index() && tag >= 0 && tag < (1 << 30), describe(),
           ": recv from ", from, " with tag ", tag);
  return issue({OpKind::kRecv, {}, data, deadline, from, tag}, 0);
}

Work Communicator::broadcast(Buffer data, int root, Deadline deadline) {
  LS_CHECK(root >= 0 && root < size(), describe(), ": broadcast from ", root);
  if (root == index())
    return issue({OpKind::kBroadcast, data, {}, deadline, root}, data.bytes() * (size() - 1));
  return issue({OpKind::kBroadcast, {}, data, deadline, root}, 0);
}

Work Communicator::barrier(Deadline deadline) {
  return issue({OpKind::kBarrier, {}, {}, deadline}, 0);
}

void Communicator::abort(const std::string& reason) {
  const Error error = {Code::kPoisoned, describe() + " was aborted: " + reason};
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
