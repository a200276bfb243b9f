#include "lockstep/comm/gloo/communicator.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/check.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep::comm {

using comm::CommError;
using comm::OpKind;
using comm::Work;

namespace {

// Gloo matches by tag; collectives and the user's own messages share one space, odd and even.
constexpr int kNumTags = 1 << 29;
int collective_tag(int number) { return 2 * number + 1; }
int message_tag(int tag) { return 2 * tag; }

const std::byte* at(const void* data, std::int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, std::int64_t offset) { return static_cast<std::byte*>(data) + offset; }

BlockCache& scratch_cache() {
  static BlockCache* cache =
      new BlockCache(std::size_t{256} << 20);  // lanes may outlive static destruction
  return *cache;
}

class Scratch {
 public:
  explicit Scratch(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        data_(static_cast<std::byte*>(scratch_cache().take(bytes_))) {}
  ~Scratch() { scratch_cache().give(data_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

// A member's piece in parts that travel one by one.
struct Segments {
  Segments(std::int64_t bytes, std::int64_t each)
      : total(bytes), size(each), count((bytes + each - 1) / each) {}
  std::int64_t begin(std::int64_t s) const { return s * size; }
  std::int64_t length(std::int64_t s) const { return std::min(size, total - begin(s)); }
  std::int64_t end(std::int64_t s) const { return begin(s) + length(s); }
  std::int64_t total, size, count;
};

// Without the place in Gloo's sources that it begins with.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  const auto place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  const std::size_t begin = place == std::string::npos ? 0 : place + 2;
  return text.substr(begin, text.find('\n') - begin);
}

}  // namespace

// A collective on the lane.
class GlooCommunicator::LaneWork final : public comm::Pending {
 public:
  LaneWork(GlooCommunicator& owner, std::shared_ptr<Call> call)
      : owner_(owner), call_(std::move(call)) {}
  void wait() override {
    std::unique_lock lock(owner_.mutex_);
    owner_.done_wake_.wait(lock, [&] { return call_->done; });  // the lane keeps the deadline
    if (call_->failure) throw *call_->failure;
  }
  std::optional<comm::Ran> ran() const override { return call_->ran; }

 private:
  GlooCommunicator& owner_;
  std::shared_ptr<Call> call_;
};

// A message, waited for by the caller itself.
class GlooCommunicator::TransferWork final : public comm::Pending {
 public:
  TransferWork(GlooCommunicator& owner, Posted posted, OpKind op, Deadline deadline)
      : owner_(owner), posted_(std::move(posted)), op_(op), deadline_(deadline) {}
  void wait() override { owner_.finish(posted_, op_, deadline_); }

 private:
  GlooCommunicator& owner_;
  Posted posted_;
  OpKind op_;
  Deadline deadline_;
};

GlooCommunicator::GlooCommunicator(comm::Membership membership, comm::Ledger& ledger,
                                   comm::Siblings& siblings, std::unique_ptr<GlooLink> link,
                                   std::shared_ptr<ProgressBoard> board)
    : Communicator(std::move(membership), ledger, siblings),
      link_(std::move(link)),
      board_(std::move(board)),
      lane_([this] { run_lane(); }),
      place_(siblings, *this) {}

GlooCommunicator::~GlooCommunicator() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  lane_wake_.notify_all();
  lane_.join();
  if (is_poisoned())
    (void)link_.release();  // Gloo's destructor may block on a peer that is stopped
}

Work GlooCommunicator::enqueue(OpKind op, Deadline deadline, ConstBuffer in, Buffer out,
                               std::function<void(const Call&)> body) {
  auto call = std::make_shared<Call>(op, deadline, in, out, std::move(body));
  {
    std::lock_guard lock(mutex_);
    call->tag = collective_tag(next_tag_);
    next_tag_ = (next_tag_ + 1) % kNumTags;
    calls_.push_back(call);
  }
  lane_wake_.notify_one();
  return {*this, std::make_unique<LaneWork>(*this, std::move(call))};
}

void GlooCommunicator::run_lane() {
  std::unique_lock lock(mutex_);
  for (;;) {
    lane_wake_.wait(lock, [this] { return stop_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const std::shared_ptr<Call> call = calls_.front();
    calls_.pop_front();
    lock.unlock();
    std::shared_ptr<Call> second;
    call->ran.begin = std::chrono::steady_clock::now();
    run_guarded(*call, [&] {
      if (call->op == OpKind::kReduceScatter) second = take_gather_of(*call);
      if (second)
        reduce_segments(*call, second.get());
      else
        call->body(*call);
    });
    call->ran.end = std::chrono::steady_clock::now();
    lock.lock();
    call->done = true;
    if (second) {
      second->ran = call->ran;
      second->failure = call->failure;
      second->done = true;
    }
    done_wake_.notify_all();
  }
}

// Only the pair that all_reduce issues: in place, piece for piece. Whether a member finds the second
// half in time makes no difference to the others: the messages are the same.
std::shared_ptr<GlooCommunicator::Call> GlooCommunicator::take_gather_of(const Call& reduce) {
  std::lock_guard lock(mutex_);
  if (calls_.empty()) return nullptr;
  const std::shared_ptr<Call> next = calls_.front();
  const void* own = at(reduce.in.data, index() * reduce.out.bytes());
  if (next->op != OpKind::kAllGather || reduce.out.data != own || next->in.data != own ||
      next->out.data != reduce.in.data || next->in.bytes() != reduce.out.bytes())
    return nullptr;
  calls_.pop_front();
  return next;
}

void GlooCommunicator::run_guarded(Call& call, const std::function<void()>& body) {
  try {
    throw_if_poisoned(call.op);
    body();
  } catch (const CommError& error) {
    call.failure = error;
  } catch (const std::exception& error) {
    call.failure = CommError({Code::kBug, error.what(), ""}, call.op, {});
    poison(*call.failure);
    stop_transfers();
  }
}

GlooCommunicator::Posted GlooCommunicator::posted(std::unique_ptr<Transfer> started, int peer) {
  Posted posted{std::move(started), peer};
  std::lock_guard lock(in_flight_mutex_);
  in_flight_.insert(posted.transfer);
  // An abort poisons before it looks at what is in flight, so one of the two always sees the other.
  if (is_poisoned()) posted.transfer->abort();
  return posted;
}

GlooCommunicator::Posted GlooCommunicator::post_send(const void* data, std::int64_t bytes, int to,
                                                     int tag, OpKind op, Deadline deadline) {
  try {
    return posted(link_->send(data, bytes, to, tag), to);
  } catch (const std::exception& error) {
    fail(to, op, deadline, first_line(error));
  }
}

GlooCommunicator::Posted GlooCommunicator::post_recv(void* data, std::int64_t bytes, int from,
                                                     int tag, OpKind op, Deadline deadline) {
  try {
    return posted(link_->recv(data, bytes, from, tag), from);
  } catch (const std::exception& error) {
    fail(from, op, deadline, first_line(error));
  }
}

GlooCommunicator::Posted GlooCommunicator::post_send(const void* data, std::int64_t bytes, int to,
                                                     const Call& call) {
  return post_send(data, bytes, to, call.tag, call.op, call.deadline);
}

GlooCommunicator::Posted GlooCommunicator::post_recv(void* data, std::int64_t bytes, int from,
                                                     const Call& call) {
  return post_recv(data, bytes, from, call.tag, call.op, call.deadline);
}

void GlooCommunicator::finish(Posted& posted, OpKind op, Deadline deadline) {
  std::string cause;
  try {
    const ProgressBoard::Waiting waiting(
        *board_, membership().members[static_cast<std::size_t>(posted.peer)],
        std::string(to_text(op)) + " on group " + membership().name);
    if (!posted.transfer->wait(deadline)) cause = "aborted";
  } catch (const std::exception& error) {
    cause = first_line(error);
  }
  if (!cause.empty()) fail(posted.peer, op, deadline, cause);
  std::lock_guard lock(in_flight_mutex_);
  in_flight_.erase(posted.transfer);
}

void GlooCommunicator::finish_all(std::vector<Posted>& posted, const Call& call) {
  for (Posted& one : posted) finish(one, call.op, call.deadline);
  posted.clear();
}

// An expired wait makes Gloo close every connection of the group. What is still in flight stays
// referenced for ever, because Gloo may keep a bare pointer to it.
void GlooCommunicator::stop_transfers() {
  std::set<std::shared_ptr<Transfer>> left;
  {
    std::lock_guard lock(in_flight_mutex_);
    left = in_flight_;
  }
  for (const auto& transfer : left) transfer->give_up();
  static std::mutex mutex;
  static auto* kept = new std::vector<std::shared_ptr<Transfer>>;
  std::lock_guard lock(mutex);
  kept->insert(kept->end(), left.begin(), left.end());
}

void GlooCommunicator::fail(int peer, OpKind op, Deadline deadline, const std::string& cause) {
  std::lock_guard lock(failure_mutex_);  // one investigation is enough
  if (!failure_) {
    if (is_poisoned()) {  // aborted from outside
      stop_transfers();
      throw_first_failure(op);
    }
    const bool late = deadline.expired();
    const Blame blame = board_->find_culprit(membership().members[static_cast<std::size_t>(peer)]);
    failure_.emplace(Error{late ? Code::kPeerStalled : Code::kPeerLost,
                           std::string(to_text(op)) + " on " + describe() +
                               (late ? " did not finish before its deadline: " : " failed: ") +
                               blame.verdict + " (" + cause + ")",
                           "restart the job from its last checkpoint"},
                     op, blame.rank);
    poison(*failure_);
    stop_transfers();
  }
  throw *failure_;
}

void GlooCommunicator::start_abort(const CommError&) {
  std::lock_guard lock(in_flight_mutex_);
  for (const auto& transfer : in_flight_) transfer->abort();
}

Work GlooCommunicator::start_send(ConstBuffer data, int to, int tag, Deadline deadline) {
  Posted posted = post_send(data.data, data.bytes(), to, message_tag(tag), OpKind::kSend, deadline);
  return {*this, std::make_unique<TransferWork>(*this, std::move(posted), OpKind::kSend, deadline)};
}

Work GlooCommunicator::start_recv(Buffer data, int from, int tag, Deadline deadline) {
  Posted posted =
      post_recv(data.data, data.bytes(), from, message_tag(tag), OpKind::kRecv, deadline);
  return {*this, std::make_unique<TransferWork>(*this, std::move(posted), OpKind::kRecv, deadline)};
}

Work GlooCommunicator::start_all_gather(ConstBuffer in, Buffer out, Deadline deadline) {
  return enqueue(OpKind::kAllGather, deadline, in, out, [this](const Call& call) { gather(call); });
}

void GlooCommunicator::gather(const Call& call) {
  std::vector<Posted> posted;
  post_gather_recvs(call, posted);
  post_gather_sends(call, 0, call.in.bytes(), posted);
  std::byte* own = at(call.out.data, index() * call.in.bytes());
  if (own != call.in.data)
    std::memcpy(own, call.in.data, static_cast<std::size_t>(call.in.bytes()));
  finish_all(posted, call);
}

void GlooCommunicator::post_gather_recvs(const Call& call, std::vector<Posted>& posted) {
  const Segments segments(call.in.bytes(), kGatherSegmentBytes);
  for (std::int64_t s = 0; s < segments.count; ++s)
    for (int step = 1; step < size(); ++step) {
      const int from = (index() - step + size()) % size();
      std::byte* target = at(call.out.data, from * call.in.bytes() + segments.begin(s));
      posted.push_back(post_recv(target, segments.length(s), from, call));
    }
}

void GlooCommunicator::post_gather_sends(const Call& call, std::int64_t after, std::int64_t until,
                                         std::vector<Posted>& posted) {
  const Segments segments(call.in.bytes(), kGatherSegmentBytes);
  for (std::int64_t s = 0; s < segments.count; ++s) {
    if (segments.end(s) <= after || segments.end(s) > until) continue;
    for (int step = 1; step < size(); ++step)
      posted.push_back(post_send(at(call.in.data, segments.begin(s)), segments.length(s),
                                 (index() + step) % size(), call));
  }
}

Work GlooCommunicator::start_reduce_scatter(ConstBuffer in, Buffer out, Deadline deadline) {
  return enqueue(OpKind::kReduceScatter, deadline, in, out,
                 [this](const Call& call) { reduce_segments(call, nullptr); });
}

void GlooCommunicator::reduce_segments(const Call& reduce, const Call* gather) {
  const std::int64_t piece = reduce.out.bytes();
  const auto width = static_cast<std::int64_t>(size_of(reduce.in.dtype));
  const Segments segments(piece, kReduceSegmentBytes);
  const std::int64_t depth = std::min(segments.count, kSegmentsInFlight);
  const Scratch scratch(depth * (size() - 1) * segments.length(0));
  const auto slot = [&](std::int64_t s, int step) {
    return scratch.data() + ((s % depth) * (size() - 1) + step - 1) * segments.length(0);
  };

  std::vector<std::vector<Posted>> received(static_cast<std::size_t>(segments.count));
  std::vector<Posted> sent, gathered;
  const auto post = [&](std::int64_t s) {
    for (int step = 1; step < size(); ++step) {
      const int from = (index() - step + size()) % size();
      received[static_cast<std::size_t>(s)].push_back(
          post_recv(slot(s, step), segments.length(s), from, reduce));
    }
    for (int step = 1; step < size(); ++step) {
      const int to = (index() + step) % size();
      sent.push_back(post_send(at(reduce.in.data, to * piece + segments.begin(s)),
                               segments.length(s), to, reduce));
    }
  };
  // A peer's sum comes back into the place its summand was sent from; it cannot come before that
  // was received.
  if (gather != nullptr) post_gather_recvs(*gather, gathered);
  for (std::int64_t s = 0; s < depth; ++s) post(s);
  std::vector<const void*> leaves(static_cast<std::size_t>(size()));
  for (std::int64_t s = 0; s < segments.count; ++s) {
    finish_all(received[static_cast<std::size_t>(s)], reduce);
    leaves[static_cast<std::size_t>(index())] =
        at(reduce.in.data, index() * piece + segments.begin(s));
    for (int step = 1; step < size(); ++step)
      leaves[static_cast<std::size_t>((index() - step + size()) % size())] = slot(s, step);
    comm::tree_sum(leaves, at(reduce.out.data, segments.begin(s)), segments.length(s) / width,
                   reduce.in.dtype);
    if (gather != nullptr) post_gather_sends(*gather, segments.begin(s), segments.end(s), gathered);
    if (s + depth < segments.count) post(s + depth);
  }
  finish_all(sent, reduce);
  if (gather != nullptr) finish_all(gathered, *gather);
}

Work GlooCommunicator::start_all_to_all(ConstBuffer in, std::vector<std::int64_t> send_counts,
                                        Buffer out, std::vector<std::int64_t> recv_counts,
                                        Deadline deadline) {
  return enqueue(OpKind::kAllToAll, deadline, in, out,
                 [this, send_counts = std::move(send_counts), recv_counts = std::move(recv_counts)](
                     const Call& call) { exchange(call, send_counts, recv_counts); });
}

void GlooCommunicator::exchange(const Call& call, const std::vector<std::int64_t>& send_counts,
                                const std::vector<std::int64_t>& recv_counts) {
  const auto width = static_cast<std::int64_t>(size_of(call.in.dtype));
  std::vector<Posted> posted;
  std::int64_t from_offset = 0, to_offset = 0, own_in = 0, own_out = 0;
  for (int m = 0; m < size(); ++m) {
    const std::int64_t receives = recv_counts[static_cast<std::size_t>(m)] * width;
    const std::int64_t sends = send_counts[static_cast<std::size_t>(m)] * width;
    if (m == index()) {
      own_in = from_offset;
      own_out = to_offset;
    } else {
      if (receives > 0)
        posted.push_back(post_recv(at(call.out.data, to_offset), receives, m, call));
      if (sends > 0) posted.push_back(post_send(at(call.in.data, from_offset), sends, m, call));
    }
    from_offset += sends;
    to_offset += receives;
  }
  const std::int64_t own = send_counts[static_cast<std::size_t>(index())] * width;
  if (own > 0)
    std::memcpy(at(call.out.data, own_out), at(call.in.data, own_in),
                static_cast<std::size_t>(own));
  finish_all(posted, call);
}

Work GlooCommunicator::start_broadcast(Buffer data, int root, Deadline deadline) {
  return enqueue(OpKind::kBroadcast, deadline, data, data,
                 [=, this](const Call& call) { spread(root, call); });
}

void GlooCommunicator::spread(int root, const Call& call) {
  const Buffer data = call.out;
  const int place = (index() - root + size()) % size();  // position in a tree whose root is 0
  const auto member = [&](int p) { return (p + root) % size(); };
  std::vector<Posted> posted;
  int reach = 1;
  while (reach <= place) reach *= 2;  // the parent differs in the highest bit
  if (place > 0) {
    posted.push_back(post_recv(data.data, data.bytes(), member(place - reach / 2), call));
    finish_all(posted, call);
  }
  for (; place + reach < size(); reach *= 2)
    posted.push_back(post_send(data.data, data.bytes(), member(place + reach), call));
  finish_all(posted, call);
}

Work GlooCommunicator::start_barrier(Deadline deadline) {
  return enqueue(OpKind::kBarrier, deadline, {}, {},
                 [this](const Call& call) { rendezvous_round(call); });
}

void GlooCommunicator::rendezvous_round(const Call& call) {
  std::byte token[2] = {};
  for (int reach = 1; reach < size(); reach *= 2) {
    std::vector<Posted> posted;
    posted.push_back(post_recv(&token[1], 1, (index() - reach + size()) % size(), call));
    posted.push_back(post_send(&token[0], 1, (index() + reach) % size(), call));
    finish_all(posted, call);
  }
}

}  // namespace lockstep::comm
