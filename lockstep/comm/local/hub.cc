#include "lockstep/comm/local/hub.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/block_cache.h"
#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep::comm {
namespace {

bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto* pa = static_cast<const std::byte*>(a);
  const auto* pb = static_cast<const std::byte*>(b);
  return a_bytes > 0 && b_bytes > 0 && pa < pb + b_bytes && pb < pa + a_bytes;
}

bool overlap(const LocalOp& op, const void* data, std::int64_t bytes) {
  return overlap(op.in.data, op.in.bytes(), data, bytes) ||
         overlap(op.out.data, op.out.bytes(), data, bytes);
}

void fill_unusable(Buffer buffer) {
  if (buffer.count > 0) std::memset(buffer.data, 0xff, buffer.bytes());
}

// Snapshots and staged results come and go at every operation.
std::shared_ptr<std::byte[]> allocate(std::int64_t bytes) {
  static BlockCache cache(std::size_t{1} << 30);
  return cache.lend(bytes);
}

void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::uint64_t hash_of(ConstBuffer buffer) {
  return xxh3_64(
      {static_cast<const std::byte*>(buffer.data), static_cast<std::size_t>(buffer.bytes())});
}

// Makes the op's memory as unhelpful as the contract allows. What an earlier op of this member
// still uses may not be touched until that one is through; execute() makes up for it.
void prepare(LocalOp& op) {
  if (op.chained) return;
  const bool in_place = overlap(op.in.data, op.in.bytes(), op.out.data, op.out.bytes());
  if (in_place) {
    op.snapshot = allocate(op.in.bytes());
    copy(op.snapshot.get(), op.in.data, op.in.bytes());
    fill_unusable({const_cast<void*>(op.in.data), op.in.count, op.in.dtype, op.in.device});
  } else if (op.in.count > 0) {
    op.in_hash = hash_of(op.in);
  }
  fill_unusable(op.out);
}

using Ops = std::vector<std::shared_ptr<LocalOp>>;

void stage_all_gather(const Ops& ops) {
  const std::int64_t piece = ops[0]->in.bytes();
  auto staged = allocate(piece * std::ssize(ops));
  for (std::size_t i = 0; i < ops.size(); ++i)
    copy(staged.get() + static_cast<std::int64_t>(i) * piece, ops[i]->source(), piece);
  for (const auto& op : ops) op->staged = staged;
}

void stage_reduce_scatter(const Ops& ops) {
  const Buffer shape = ops[0]->out;
  auto staged = allocate(ops[0]->in.bytes());
  for (std::size_t j = 0; j < ops.size(); ++j) {
    const std::int64_t offset = static_cast<std::int64_t>(j) * shape.bytes();
    std::vector<const void*> inputs;
    for (const auto& op : ops)
      inputs.push_back(static_cast<const std::byte*>(op->source()) + offset);
    tree_sum(inputs, staged.get() + offset, shape.count, shape.dtype);
    ops[j]->staged = staged;
    ops[j]->staged_offset = offset;
  }
}

void stage_all_to_all(const Ops& ops) {
  for (std::size_t to = 0; to < ops.size(); ++to) {
    auto staged = allocate(ops[to]->out.bytes());
    std::int64_t at = 0;
    for (const auto& from : ops) {
      const auto width = static_cast<std::int64_t>(size_of(from->in.dtype));
      std::int64_t skip = 0;
      for (std::size_t k = 0; k < to; ++k) skip += from->send_counts[k];
      copy(staged.get() + at, static_cast<const std::byte*>(from->source()) + skip * width,
           from->send_counts[to] * width);
      at += from->send_counts[to] * width;
    }
    ops[to]->staged = std::move(staged);
  }
}

// One source, every other op receives.
void stage_copy(const Ops& ops, const LocalOp& source) {
  auto staged = allocate(source.in.bytes());
  copy(staged.get(), source.source(), source.in.bytes());
  for (const auto& op : ops)
    if (op.get() != &source) op->staged = staged;
}

void stage(const Ops& ops) {
  switch (ops[0]->kind) {
    case OpKind::kAllGather:
      return stage_all_gather(ops);
    case OpKind::kReduceScatter:
      return stage_reduce_scatter(ops);
    case OpKind::kAllToAll:
      return stage_all_to_all(ops);
    case OpKind::kSend:
      return stage_copy(ops, *ops[0]);
    case OpKind::kBroadcast:
      return stage_copy(ops, *ops[ops[0]->peer]);
    default:
      return;
  }
}

// What a member brings to an operation: its input, or where it has none its output.
ConstBuffer brings(const LocalOp& op) {
  return op.in.data != nullptr || op.in.count > 0 ? op.in : ConstBuffer(op.out);
}

bool fits(const LocalOp& op, const LocalOp& first, const Ops& ops) {
  if (op.kind != first.kind || brings(op).dtype != brings(first).dtype) return false;
  if (op.kind == OpKind::kBroadcast)
    return op.peer == first.peer && brings(op).count == brings(first).count;
  if (op.kind != OpKind::kAllToAll)
    return op.in.count == first.in.count && op.out.count == first.out.count;
  return std::ranges::all_of(ops, [&](const auto& from) {
    return from->kind == op.kind && from->send_counts[op.member] == op.recv_counts[from->member];
  });
}

// Why these calls cannot be one operation; empty when they can.
std::string mismatch(const LocalGroup& group, const Ops& ops) {
  const auto describe = [&](const LocalOp& op) {
    const Rank rank = group.shape.members[op.member];
    return "rank " + std::to_string(rank.value) + " called " + std::string(to_text(op.kind)) +
           " of " + std::to_string(op.in.count) + " to " + std::to_string(op.out.count) + " " +
           std::string(to_text(brings(op).dtype));
  };
  const LocalOp& first = *ops[0];
  for (const auto& op : ops) {
    const bool good = first.kind == OpKind::kSend ? brings(*op).bytes() == first.in.bytes()
                                                  : fits(*op, first, ops);
    if (!good) return describe(first) + ", " + describe(*op);
  }
  return "";
}

}  // namespace

void LocalOp::deliver() {
  std::lock_guard lock(delivery);
  if (delivered) return;
  if (staged) copy(out.data, staged.get() + staged_offset, out.bytes());
  staged.reset();
  delivered = true;  // last: from now on the memory may be taken for this member's own again
}

LocalHub::LocalHub(int size, LocalOptions options)
    : size_(size),
      order_(options.seed),
      lateness_(std::move(options.lateness)),
      engine_([this] { run(); }) {}

LocalHub::~LocalHub() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  engine_wake_.notify_all();
  engine_.join();
}

void LocalHub::show(Rank rank, std::shared_ptr<const PositionCell> position) {
  const std::lock_guard lock(mutex_);
  positions_[rank] = std::move(position);
}

std::vector<LastSeen> LocalHub::last_seen() {
  const std::lock_guard lock(mutex_);
  std::vector<LastSeen> all(size_);
  for (const auto& [rank, cell] : positions_) all[rank.value].position = cell->get();
  return all;
}

std::shared_ptr<LocalGroup> LocalHub::group(const Membership& membership) {
  std::lock_guard lock(mutex_);
  auto& group = groups_[membership.name];
  if (!group) {
    group = std::make_shared<LocalGroup>();
    group->shape = membership;
    group->calls.resize(membership.members.size());
    group->issued.resize(membership.members.size());
  }
  LS_CHECK(group->shape.members == membership.members, "group ", membership.name,
           " connected with other members");
  return group;
}

void LocalHub::post(const std::shared_ptr<LocalGroup>& group, const std::shared_ptr<LocalOp>& op) {
  std::unique_lock lock(mutex_);
  auto& issued = group->issued[op->member];
  std::erase_if(issued, [](const std::weak_ptr<LocalOp>& earlier) { return earlier.expired(); });
  op->chained = std::ranges::any_of(issued, [&](const std::weak_ptr<LocalOp>& weak) {
    const auto earlier = weak.lock();
    return earlier && !earlier->delivered &&
           (overlap(*earlier, op->in.data, op->in.bytes()) ||
            overlap(*earlier, op->out.data, op->out.bytes()));
  });
  // What this op writes over is no longer the earlier op's to guard.
  for (const auto& weak : issued)
    if (const auto earlier = weak.lock();
        earlier && overlap(earlier->in.data, earlier->in.bytes(), op->out.data, op->out.bytes()))
      earlier->in_hash.reset();
  lock.unlock();
  prepare(*op);
  lock.lock();
  issued.push_back(op);
  if (const auto lost = lost_member(*group, *op); lost && !group->failure)
    fail_locked(*group,
                {Code::kPeerLost, "rank " + std::to_string(lost->value) + " " + lost_[*lost], ""},
                lost);
  if (group->failure) {
    op->state = LocalOp::State::kFailed;
    std::tie(op->failure, op->culprit) = *group->failure;
    return;
  }
  if (op->kind == OpKind::kSend || op->kind == OpKind::kRecv) {
    const bool sends = op->kind == OpKind::kSend;
    const LocalGroup::Channel channel = sends ? std::tuple(op->member, op->peer, op->tag)
                                              : std::tuple(op->peer, op->member, op->tag);
    auto& own = (sends ? group->sends : group->recvs)[channel];
    auto& other = (sends ? group->recvs : group->sends)[channel];
    if (other.empty()) {
      own.push_back(op);
    } else {
      auto match = other.front();
      other.pop_front();
      enqueue(group, sends ? Ops{op, match} : Ops{match, op});
    }
  } else {
    group->calls[op->member].push_back(op);
    // Only the member that completes the head makes it ready; a queue behind the head changes
    // nothing.
    if (group->calls[op->member].size() == 1) enqueue_if_complete(group);
  }
}

void LocalHub::enqueue_if_complete(const std::shared_ptr<LocalGroup>& group) {
  Ops heads;
  for (const auto& calls : group->calls) {
    if (calls.empty()) return;
    heads.push_back(calls.front());
  }
  enqueue(group, std::move(heads));
}

void LocalHub::enqueue(const std::shared_ptr<LocalGroup>& group, Ops ops) {
  Ready ready{group, std::move(ops)};
  if (lateness_) {
    const LocalOp& first = *ready.ops[0];
    const bool is_message = first.kind == OpKind::kSend;
    const LocalGroup::Channel channel =
        is_message ? LocalGroup::Channel(first.member, first.peer, first.tag)
                   : LocalGroup::Channel(-1, -1, -1);
    const auto& [from, to, tag] = channel;
    ready.held = Deadline::after(
        lateness_({group->shape.name, first.kind, from, to, tag, group->deliveries[channel]++}));
  }
  ready_.push_back(std::move(ready));
  engine_wake_.notify_one();
}

bool LocalHub::choose(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (stop_) return false;
    const auto due = std::partition(ready_.begin(), ready_.end(),
                                    [](const Ready& ready) { return !ready.held.expired(); });
    if (const auto count = ready_.end() - due; count > 0) {
      std::swap(due[static_cast<std::ptrdiff_t>(order_() % static_cast<std::uint64_t>(count))],
                ready_.back());
      return true;
    }
    const auto next = std::ranges::min_element(ready_, {}, &Ready::held);
    if (next == ready_.end() || next->held.is_never())
      engine_wake_.wait(lock);
    else
      engine_wake_.wait_until(lock, next->held.point());
  }
}

void LocalHub::run() {
  std::unique_lock lock(mutex_);
  while (choose(lock)) {
    // Failing the group here reaches these ops too, because they are still in the list.
    LocalGroup& group = *ready_.back().group;
    if (const std::string why = mismatch(group, ready_.back().ops); !group.failure && !why.empty())
      fail_locked(group, {Code::kMismatchedCalls, why, ""}, {});
    const Ready chosen = std::move(ready_.back());
    ready_.pop_back();
    if (group.failure) continue;
    for (const auto& op : chosen.ops) op->state = LocalOp::State::kExecuting;
    lock.unlock();
    const SteadyPoint begin = std::chrono::steady_clock::now();
    execute(chosen);
    const Ran ran = {begin, std::chrono::steady_clock::now()};
    lock.lock();
    for (const auto& op : chosen.ops) {
      op->state = LocalOp::State::kStaged;
      op->ran = ran;
      op->finished.notify_all();
    }
    if (chosen.ops[0]->kind != OpKind::kSend && !group.failure) {
      for (auto& calls : group.calls) calls.pop_front();
      enqueue_if_complete(chosen.group);
    }
  }
}

void LocalHub::execute(const Ready& ready) {
  // An input may be the output of an earlier operation that nobody waited for yet (communicator.h,
  // order).
  for (const auto& op : ready.ops) {
    std::vector<std::shared_ptr<LocalOp>> earlier;
    {
      std::lock_guard lock(mutex_);
      for (const auto& weak : ready.group->issued[op->member]) {
        auto other = weak.lock();
        if (other == op) break;
        if (other && other->state == LocalOp::State::kStaged) earlier.push_back(std::move(other));
      }
    }
    for (const auto& other : earlier)
      if (overlap(*op, other->out.data, other->out.bytes())) other->deliver();
  }
  stage(ready.ops);
  for (const auto& op : ready.ops)
    if (op->chained) fill_unusable(op->out);
}

std::vector<Rank> LocalHub::who_is_missing(const LocalGroup& group, const LocalOp& op) const {
  std::vector<Rank> missing;
  if (op.kind == OpKind::kSend || op.kind == OpKind::kRecv) {
    const auto& waiting = op.kind == OpKind::kSend ? group.sends : group.recvs;
    for (const auto& [channel, ops] :
         waiting)  // one that is matched waits for the engine, not for the peer
      if (std::ranges::any_of(ops, [&](const auto& other) { return other.get() == &op; }))
        missing.push_back(group.shape.members[op.peer]);
  } else {
    const auto& own = group.calls[op.member];
    const auto place =
        std::ranges::find_if(own, [&](const auto& call) { return call.get() == &op; }) -
        own.begin();
    for (std::size_t i = 0; i < group.calls.size(); ++i)
      if (std::ssize(group.calls[i]) <= place) missing.push_back(group.shape.members[i]);
  }
  return missing;
}

void LocalHub::fail_if_late(LocalGroup& group, const LocalOp& op) {
  const std::vector<Rank> missing = who_is_missing(group, op);
  if (missing.empty()) {
    const bool is_held = std::ranges::any_of(ready_, [&](const Ready& ready) {
      return ready.group.get() == &group && !ready.held.expired();
    });
    if (is_held)
      fail_locked(group,
                  {Code::kPeerStalled,
                   "all members take part, but nothing was delivered before the deadline", ""},
                  {});
    return;
  }
  std::string text;
  for (const Rank rank : missing)
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank.value);
  fail_locked(group, {Code::kPeerStalled, text + " did not take part before the deadline", ""},
              missing[0]);
}

void LocalHub::wait(LocalGroup& group, LocalOp& op) {
  std::unique_lock lock(mutex_);
  const auto finished = [&] {
    return op.state == LocalOp::State::kStaged || op.state == LocalOp::State::kFailed;
  };
  if (!op.finished.wait_until(lock, op.deadline.point(), finished)) {
    if (op.state == LocalOp::State::kPosted) fail_if_late(group, op);
    op.finished.wait(lock, finished);  // the engine has it, or has it next; it ends soon
  }
  if (op.state == LocalOp::State::kFailed) {
    throw CommError({op.failure.code,
                     std::string(to_text(op.kind)) + " on local group " + group.shape.name + ": " +
                         op.failure.message,
                     op.failure.help},
                    op.kind, op.culprit);
  }
  const std::optional<std::uint64_t> expected = op.in_hash;
  lock.unlock();
  const bool changed = expected && hash_of(op.in) != *expected;
  op.deliver();
  lock.lock();  // what was just written is now visible to the engine, which may read it for a later
                // operation
  std::erase_if(group.issued[op.member], [&](const std::weak_ptr<LocalOp>& weak) {
    const auto other = weak.lock();
    return !other || other.get() == &op;
  });
  lock.unlock();
  LS_CHECK(!changed, to_text(op.kind), " on local group ", group.shape.name,
           ": its input was written between issue and wait");
}

void LocalHub::fail(LocalGroup& group, Error error, std::optional<Rank> culprit) {
  std::lock_guard lock(mutex_);
  fail_locked(group, std::move(error), culprit);
}

void LocalHub::fail_locked(LocalGroup& group, Error error, std::optional<Rank> culprit) {
  if (!group.failure) group.failure.emplace(std::move(error), culprit);
  const auto fail_ops = [&](std::deque<std::shared_ptr<LocalOp>>& ops) {
    for (const auto& op : ops) {
      if (op->state != LocalOp::State::kPosted) continue;
      op->state = LocalOp::State::kFailed;
      std::tie(op->failure, op->culprit) = *group.failure;
      op->finished.notify_all();
    }
    ops.clear();
  };
  for (auto& calls : group.calls) fail_ops(calls);
  for (auto& [channel, ops] : group.sends) fail_ops(ops);
  for (auto& [channel, ops] : group.recvs) fail_ops(ops);
  for (auto& ready : ready_)
    if (ready.group.get() == &group) {
      std::deque<std::shared_ptr<LocalOp>> ops(ready.ops.begin(), ready.ops.end());
      fail_ops(ops);
    }
}

// Whom the op needs and cannot have: any member for a collective, the peer for a message.
std::optional<Rank> LocalHub::lost_member(const LocalGroup& group, const LocalOp& op) const {
  const bool message = op.kind == OpKind::kSend || op.kind == OpKind::kRecv;
  for (std::size_t i = 0; i < group.shape.members.size(); ++i)
    if (lost_.contains(group.shape.members[i]) && (!message || static_cast<int>(i) == op.peer))
      return group.shape.members[i];
  return std::nullopt;
}

void LocalHub::lose(Rank rank, const std::string& why) {
  std::lock_guard lock(mutex_);
  lost_.emplace(rank, why);
  for (auto& [name, group] : groups_) {
    bool waited_for = false;
    const auto look = [&](const std::deque<std::shared_ptr<LocalOp>>& ops) {
      for (const auto& op : ops) waited_for = waited_for || lost_member(*group, *op).has_value();
    };
    for (const auto& calls : group->calls) look(calls);
    for (const auto& [channel, ops] : group->sends) look(ops);
    for (const auto& [channel, ops] : group->recvs) look(ops);
    if (waited_for)
      fail_locked(*group,
                  {Code::kPeerLost, "rank " + std::to_string(rank.value) + " " + lost_[rank], ""},
                  rank);
  }
}

}  // namespace lockstep::comm
