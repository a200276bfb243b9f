// Collectives composed of transfers between pairs of members, because Gloo moves bytes pair by pair
// faster than its own collectives do. Each communicator has one thread, its lane, that runs
// collectives in the order of issue; send and recv are posted at once and need no lane.
//
//   all_gather      everyone sends its piece to everyone, in segments
//   reduce_scatter  everyone sends to each member that member's piece, in segments; a segment is
//                   added as soon as it has come from all, while the next ones travel
//   all_to_all      pairwise
//   broadcast       binomial tree
//   barrier         dissemination: after ceil(log2 n) rounds everyone has heard of everyone
//   all_reduce      comes as a reduce_scatter and the all_gather of its result; the lane runs such
//                   a pair together, gathering a segment while the next ones are still reduced
#include "lockstep/comm/gloo/world.h"

#include <ATen/ops/from_blob.h>
#if __has_include(<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>)
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#else
#include <torch/csrc/distributed/c10d/gloo/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/store/PrefixStore.hpp>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/base/block_cache.h"
#include "lockstep/base/check.h"
#include "lockstep/comm/c10d/process_world.h"
#include "lockstep/comm/call_beside.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep::comm {
namespace {

// Bytes of one segment. A message costs about 50 us beside its bytes, so segments are as large as
// the overlap allows: what is added should still be in the cache, and what is only gathered need
// not be.
constexpr std::int64_t kReduceSegmentBytes = 2 << 20;
constexpr std::int64_t kGatherSegmentBytes = 8 << 20;
static_assert(kGatherSegmentBytes % kReduceSegmentBytes == 0);
constexpr std::int64_t kSegmentsInFlight = 4;  // of a reduce_scatter

// Gloo matches by tag; collectives and the user's own messages share one space, odd and even.
constexpr int kNumTags = 1 << 29;
int collective_tag(int number) { return 2 * number + 1; }
int message_tag(int tag) { return 2 * tag; }

const std::byte* at_byte(const void* data, std::int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* at_byte(void* data, std::int64_t offset) {
  return static_cast<std::byte*>(data) + offset;
}

BlockCache& scratch_cache() {
  static auto* cache = new BlockCache(std::size_t{256} << 20);  // lanes may outlive main
  return *cache;
}

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

// Bytes on the way to or from `peer`. Must have ended before it is destroyed, because Gloo keeps a
// bare pointer to it. Any thread may call it; how it ended is remembered.
class Transfer {
 public:
  Transfer(int peer, c10::intrusive_ptr<c10d::Work> work) : peer_(peer), work_(std::move(work)) {}

  int peer() const { return peer_; }

  // Throws std::exception when the peer is gone or the deadline passes; the whole group is then
  // dead. Returns false when it was aborted.
  bool wait(Deadline deadline) {
    std::lock_guard lock(waiting_);
    if (failure_) std::rethrow_exception(failure_);
    if (completed_) return true;
    if (aborted_) return false;
    try {
      completed_ = work_->wait(in_milliseconds(deadline));
      return completed_;
    } catch (const std::exception&) {
      failure_ = std::current_exception();
      throw;
    }
  }

  // Ends a wait in progress and all later ones.
  void abort() {
    aborted_ = true;
    work_->abort();
  }

  // Ends the transfer itself, and with it the whole group: Gloo closes the group's connections when
  // a wait for one of its transfers expires. The first wait after an abort only reports the abort.
  void give_up() {
    const std::unique_lock lock(waiting_, std::try_to_lock);
    if (!lock) return abort();  // somebody waits for it and is to learn that it is over
    for (int attempt = 0; attempt < 2 && !completed_ && !failure_; ++attempt) {
      try {
        completed_ = work_->wait(std::chrono::milliseconds(1));
      } catch (const std::exception&) {
        failure_ = std::current_exception();
      }
    }
  }

 private:
  const int peer_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::atomic<bool> aborted_ = false;
  std::mutex waiting_;  // guards the rest
  bool completed_ = false;
  std::exception_ptr failure_;
};

class GlooCommunicator final : public Communicator {
 public:
  // `group` is null for a group of one.
  GlooCommunicator(Membership membership, Ledger& ledger, Siblings& siblings,
                   c10::intrusive_ptr<c10d::ProcessGroupGloo> group,
                   std::shared_ptr<ProgressBoard> board)
      : Communicator(std::move(membership), ledger, siblings),
        group_(std::move(group)),
        board_(std::move(board)),
        lane_([this] { run_lane(); }),
        place_(siblings, *this) {}

  ~GlooCommunicator() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    lane_wake_.notify_all();
    lane_.join();
    if (is_poisoned())
      (void)group_.release();  // Gloo's destructor may block on a peer that is stopped
  }

 protected:
  Work start(const Operation& operation) override {
    if (operation.kind == OpKind::kSend || operation.kind == OpKind::kRecv) {
      const Call call(operation, message_tag(operation.tag));
      const Posted posted = operation.kind == OpKind::kSend
                                ? post_send(call.in.data, call.in.bytes(), call.peer, call)
                                : post_recv(call.out.data, call.out.bytes(), call.peer, call);
      return {*this, [this, call, posted]() -> std::optional<Ran> {
                finish(posted, call);
                return std::nullopt;
              }};
    }
    const auto call = std::make_shared<Call>(operation, 0);
    {
      std::lock_guard lock(mutex_);
      call->tag = collective_tag(next_tag_);
      next_tag_ = (next_tag_ + 1) % kNumTags;
      calls_.push_back(call);
    }
    lane_wake_.notify_one();
    return {*this, [this, call]() -> std::optional<Ran> {
              std::unique_lock done(mutex_);
              done_wake_.wait(done, [&] { return call->done; });  // the lane keeps the deadline
              if (call->failure) throw *call->failure;
              return call->ran;
            }};
  }

  void start_abort(const CommError&) override {
    std::lock_guard lock(in_flight_mutex_);
    for (const Posted& transfer : in_flight_) transfer->abort();
  }

  std::string backend_name() const override { return "gloo"; }

 private:
  using Posted = std::shared_ptr<Transfer>;
  struct Call : Operation {
    Call(const Operation& operation, int wire_tag) : Operation(operation) { tag = wire_tag; }
    // Of a collective, which the lane runs:
    Ran ran = {};
    bool done = false;
    std::optional<CommError> failure = {};
  };

  void run_lane() {
    std::unique_lock lock(mutex_);
    for (;;) {
      lane_wake_.wait(lock, [this] { return stop_ || !calls_.empty(); });
      if (calls_.empty()) return;
      const std::shared_ptr<Call> call = calls_.front();
      calls_.pop_front();
      lock.unlock();
      const std::shared_ptr<Call> second = take_gather_of(*call);
      call->ran.begin = std::chrono::steady_clock::now();
      run(*call, second.get());
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

  // The second half of an all_reduce, if it is next: only the pair that all_reduce issues, in
  // place, piece for piece. Whether a member finds it in time makes no difference to the others:
  // the messages are the same.
  std::shared_ptr<Call> take_gather_of(const Call& reduce) {
    const std::lock_guard lock(mutex_);
    if (reduce.kind != OpKind::kReduceScatter || calls_.empty()) return nullptr;
    const std::shared_ptr<Call> next = calls_.front();
    const void* own = at_byte(reduce.in.data, index() * reduce.out.bytes());
    if (next->kind != OpKind::kAllGather || reduce.out.data != own || next->in.data != own ||
        next->out.data != reduce.in.data || next->in.bytes() != reduce.out.bytes())
      return nullptr;
    calls_.pop_front();
    return next;
  }

  void run(Call& call, const Call* second) {
    try {
      throw_if_poisoned(call.kind);
      switch (call.kind) {
        case OpKind::kAllGather:
          return gather(call);
        case OpKind::kReduceScatter:
          return reduce_segments(call, second);
        case OpKind::kAllToAll:
          return exchange(call);
        case OpKind::kBroadcast:
          return spread(call);
        default:
          return hear_of_all(call);
      }
    } catch (const CommError& error) {
      call.failure = error;
    } catch (const std::exception& error) {
      call.failure = CommError({Code::kBug, error.what(), ""}, call.kind, {});
      poison(*call.failure);
      stop_transfers();
    }
  }

  // Transfers match by (sender, receiver, tag) in the order of issue.
  Posted post_send(const void* data, std::int64_t bytes, int to, const Call& call) {
    std::vector<at::Tensor> message{at::from_blob(const_cast<void*>(data), {bytes}, at::kByte)};
    return post(to, call, [&] { return group_->send(message, to, call.tag); });
  }
  Posted post_recv(void* data, std::int64_t bytes, int from, const Call& call) {
    std::vector<at::Tensor> message{at::from_blob(data, {bytes}, at::kByte)};
    return post(from, call, [&] { return group_->recv(message, from, call.tag); });
  }
  template <class Issue>
  Posted post(int peer, const Call& call, const Issue& issue) {
    try {
      const auto posted = std::make_shared<Transfer>(peer, issue());
      std::lock_guard lock(in_flight_mutex_);
      in_flight_.insert(posted);
      // An abort poisons before it looks at what is in flight, so one of the two always sees the
      // other.
      if (is_poisoned()) posted->abort();
      return posted;
    } catch (const std::exception& error) {
      fail(peer, call, first_line(error));
    }
  }

  void finish(const Posted& posted, const Call& call) {
    std::string cause;
    try {
      const ProgressBoard::Waiting waiting(
          *board_, rank_of(posted->peer()),
          std::string(to_text(call.kind)) + " on group " + membership().name);
      if (!posted->wait(call.deadline)) cause = "aborted";
    } catch (const std::exception& error) {
      cause = first_line(error);
    }
    if (!cause.empty()) fail(posted->peer(), call, cause);
    std::lock_guard lock(in_flight_mutex_);
    in_flight_.erase(posted);
  }

  void finish_all(std::vector<Posted>& posted, const Call& call) {
    for (const Posted& one : posted) finish(one, call);
    posted.clear();
  }

  // After a failure nothing may write to a buffer any more: ends what is still on the way. An
  // expired wait makes Gloo close every connection of the group. What is still in flight stays
  // referenced for ever, because Gloo may keep a bare pointer to it.
  void stop_transfers() {
    std::set<Posted> left;
    {
      std::lock_guard lock(in_flight_mutex_);
      left = in_flight_;
    }
    for (const Posted& transfer : left) transfer->give_up();
    static std::mutex mutex;
    static auto* kept = new std::vector<Posted>;
    std::lock_guard lock(mutex);
    kept->insert(kept->end(), left.begin(), left.end());
  }

  // Finds who is to blame, poisons, gives up the connections, and throws.
  [[noreturn]] void fail(int peer, const Call& call, const std::string& cause) {
    std::lock_guard lock(failure_mutex_);  // one investigation is enough
    if (!failure_) {
      if (is_poisoned()) {  // aborted from outside
        stop_transfers();
        throw_first_failure(call.kind);
      }
      const bool late = call.deadline.expired();
      const Blame blame = board_->find_culprit(rank_of(peer));
      failure_.emplace(Error{late ? Code::kPeerStalled : Code::kPeerLost,
                             std::string(to_text(call.kind)) + " on " + describe() +
                                 (late ? " did not finish before its deadline: " : " failed: ") +
                                 blame.verdict + " (" + cause + ")",
                             "restart the job from its last checkpoint"},
                       call.kind, blame.rank);
      poison(*failure_);
      stop_transfers();
    }
    throw *failure_;
  }

  Rank rank_of(int member) const { return membership().members[member]; }
  // Members at a distance, around the ring of all.
  int behind(int distance) const { return (index() - distance + size()) % size(); }
  int ahead(int distance) const { return (index() + distance) % size(); }

  void gather(const Call& call) {
    std::vector<Posted> posted;
    post_gather_recvs(call, posted);
    post_gather_sends(call, 0, call.in.bytes(), posted);
    std::byte* own = at_byte(call.out.data, index() * call.in.bytes());
    if (own != call.in.data) std::memcpy(own, call.in.data, call.in.bytes());
    finish_all(posted, call);
  }

  void post_gather_recvs(const Call& call, std::vector<Posted>& posted) {
    const Segments segments(call.in.bytes(), kGatherSegmentBytes);
    for (std::int64_t s = 0; s < segments.count; ++s)
      for (int step = 1; step < size(); ++step) {
        const int from = behind(step);
        std::byte* target = at_byte(call.out.data, from * call.in.bytes() + segments.begin(s));
        posted.push_back(post_recv(target, segments.length(s), from, call));
      }
  }

  // Those segments whose last byte lies in (after, until].
  void post_gather_sends(const Call& call, std::int64_t after, std::int64_t until,
                         std::vector<Posted>& posted) {
    const Segments segments(call.in.bytes(), kGatherSegmentBytes);
    for (std::int64_t s = 0; s < segments.count; ++s) {
      if (segments.end(s) <= after || segments.end(s) > until) continue;
      for (int step = 1; step < size(); ++step)
        posted.push_back(post_send(at_byte(call.in.data, segments.begin(s)), segments.length(s),
                                   ahead(step), call));
    }
  }

  // With `gather`, also what that call asks for.
  void reduce_segments(const Call& reduce, const Call* gather) {
    const std::int64_t piece = reduce.out.bytes();
    const auto width = static_cast<std::int64_t>(size_of(reduce.in.dtype));
    const Segments segments(piece, kReduceSegmentBytes);
    const std::int64_t depth = std::min(segments.count, kSegmentsInFlight);
    const auto scratch = scratch_cache().lend(depth * (size() - 1) * segments.length(0));
    const auto slot = [&](std::int64_t s, int step) {
      return scratch.get() + ((s % depth) * (size() - 1) + step - 1) * segments.length(0);
    };

    std::vector<std::vector<Posted>> received(segments.count);
    std::vector<Posted> sent, gathered;
    const auto post_segment = [&](std::int64_t s) {
      for (int step = 1; step < size(); ++step)
        received[s].push_back(post_recv(slot(s, step), segments.length(s), behind(step), reduce));
      for (int step = 1; step < size(); ++step)
        sent.push_back(post_send(at_byte(reduce.in.data, ahead(step) * piece + segments.begin(s)),
                                 segments.length(s), ahead(step), reduce));
    };
    // A peer's sum comes back into the place its summand was sent from; it cannot come before that
    // was received.
    if (gather != nullptr) post_gather_recvs(*gather, gathered);
    for (std::int64_t s = 0; s < depth; ++s) post_segment(s);
    std::vector<const void*> leaves(size());
    for (std::int64_t s = 0; s < segments.count; ++s) {
      finish_all(received[s], reduce);
      leaves[index()] = at_byte(reduce.in.data, index() * piece + segments.begin(s));
      for (int step = 1; step < size(); ++step) leaves[behind(step)] = slot(s, step);
      tree_sum(leaves, at_byte(reduce.out.data, segments.begin(s)), segments.length(s) / width,
               reduce.in.dtype);
      if (gather != nullptr)
        post_gather_sends(*gather, segments.begin(s), segments.end(s), gathered);
      if (s + depth < segments.count) post_segment(s + depth);
    }
    finish_all(sent, reduce);
    if (gather != nullptr) finish_all(gathered, *gather);
  }

  void exchange(const Call& call) {
    const auto width = static_cast<std::int64_t>(size_of(call.in.dtype));
    std::vector<Posted> posted;
    const std::byte* from = at_byte(call.in.data, 0);
    std::byte* to = at_byte(call.out.data, 0);
    for (int m = 0; m < size(); ++m) {
      const std::int64_t receives = call.recv_counts[m] * width;
      const std::int64_t sends = call.send_counts[m] * width;
      if (m == index()) {
        if (sends > 0) std::memcpy(to, from, sends);
      } else {
        if (receives > 0) posted.push_back(post_recv(to, receives, m, call));
        if (sends > 0) posted.push_back(post_send(from, sends, m, call));
      }
      from += sends;
      to += receives;
    }
    finish_all(posted, call);
  }

  void spread(const Call& call) {
    const int root = call.peer;
    const bool is_root = root == index();
    void* const data = is_root ? const_cast<void*>(call.in.data) : call.out.data;
    const std::int64_t bytes = is_root ? call.in.bytes() : call.out.bytes();
    const int place = (index() - root + size()) % size();  // position in a tree whose root is 0
    const auto member = [&](int p) { return (p + root) % size(); };
    std::vector<Posted> posted;
    int distance = 1;
    while (distance <= place) distance *= 2;  // the parent differs in the highest bit
    if (place > 0) finish(post_recv(data, bytes, member(place - distance / 2), call), call);
    for (; place + distance < size(); distance *= 2)
      posted.push_back(post_send(data, bytes, member(place + distance), call));
    finish_all(posted, call);
  }

  void hear_of_all(const Call& call) {
    std::byte token[2] = {};
    for (int distance = 1; distance < size(); distance *= 2) {
      std::vector<Posted> posted;
      posted.push_back(post_recv(&token[1], 1, behind(distance), call));
      posted.push_back(post_send(&token[0], 1, ahead(distance), call));
      finish_all(posted, call);
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;  // leaked once poisoned
  std::shared_ptr<ProgressBoard> board_;

  std::mutex in_flight_mutex_;
  std::set<Posted> in_flight_;  // not yet waited for, or given up in a failure
  std::mutex failure_mutex_;
  std::optional<CommError> failure_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable lane_wake_, done_wake_;
  std::deque<std::shared_ptr<Call>> calls_;
  int next_tag_ = 0;
  bool stop_ = false;
  std::thread lane_;
  const Siblings::Place place_;
};

// Listens at the numeric `own_address`, unless GLOO_SOCKET_IFNAME names an interface. Each device
// owns a thread, so all groups of the process share one.
const std::shared_ptr<::gloo::transport::Device>& device(const std::string& own_address) {
  static const auto shared = [&] {
    if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != '\0')
      return c10d::ProcessGroupGloo::createDeviceForInterface(name);
    return c10d::ProcessGroupGloo::createDeviceForHostname(own_address);
  }();
  return shared;
}

// Collective over the members, which meet under their group's name in the store.
c10::intrusive_ptr<c10d::ProcessGroupGloo> connect_members(Store& store, const Membership& place,
                                                           const std::string& own_address,
                                                           Deadline deadline) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(device(own_address));
  options->threads = 1;
  options->timeout = in_milliseconds(deadline);
  auto native = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store.native());
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>("group/" + place.name, std::move(native));
  prefixed->setTimeout(in_milliseconds(deadline));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(std::move(prefixed), place.index, place.size(),
                                                     options);
}

class GlooWorld final : public ProcessWorld {
 public:
  using ProcessWorld::ProcessWorld;

 private:
  std::unique_ptr<Communicator> connect_group(Membership place, Deadline deadline) override {
    c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
    if (place.size() > 1)  // left behind when a rank is lost or a signal comes
      group = call_beside([store = store(), place, address = own_address(),
                           deadline] { return connect_members(*store, place, address, deadline); },
                          [&] { check_connecting(deadline); });
    return std::make_unique<GlooCommunicator>(std::move(place), ledger(), siblings(),
                                              std::move(group), board());
  }
};

}  // namespace

std::unique_ptr<ProcessWorld> join_gloo(const Rendezvous& rendezvous, Deadline deadline,
                                        const JoinOptions& options) {
  return std::make_unique<GlooWorld>(rendezvous, deadline, options);
}

Backend gloo_backend() {
  return {.name = "gloo",
          .device = DeviceKind::kCpu,
          .check = []() -> Result<void> { return {}; },
          .join = [](const Rendezvous& rendezvous, Deadline deadline, const JoinOptions& options)
              -> std::unique_ptr<World> { return join_gloo(rendezvous, deadline, options); }};
}

}  // namespace lockstep::comm
