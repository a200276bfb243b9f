// Collectives composed of paired transfers (private to the gloo row). Each communicator has one
// thread, its lane, that runs collectives in the order of issue; send and recv are posted at once
// and need no lane.
//
//   all_gather      everyone sends its piece to everyone, in segments
//   reduce_scatter  everyone sends to each member that member's piece, in segments; a segment is
//                   added as soon as it has come from all, while the next ones travel
//   all_to_all      pairwise
//   broadcast       binomial tree
//   barrier         dissemination: after ceil(log2 n) rounds everyone has heard of everyone
//   all_reduce      comes as a reduce_scatter and the all_gather of its result; the lane runs such
//                   a pair together, gathering a segment while the next ones are still reduced
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "lockstep/base/block_cache.h"
#include "lockstep/comm/c10d/progress.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo/link.h"

namespace lockstep::comm {

// Bytes of one segment. A message costs about 50 us beside its bytes, so segments are as large as
// the overlap allows: what is added should still be in the cache, and what is only gathered need
// not be.
inline constexpr std::int64_t kReduceSegmentBytes = 2 << 20;
inline constexpr std::int64_t kGatherSegmentBytes = 8 << 20;
static_assert(kGatherSegmentBytes % kReduceSegmentBytes == 0);
inline constexpr std::int64_t kSegmentsInFlight = 4;  // of a reduce_scatter

class GlooCommunicator final : public comm::Communicator {
 public:
  GlooCommunicator(comm::Membership membership, comm::Ledger& ledger, comm::Siblings& siblings,
                   std::unique_ptr<GlooLink> link, std::shared_ptr<ProgressBoard> board);
  ~GlooCommunicator() override;

 protected:
  comm::Work start_all_gather(ConstBuffer in, Buffer out, Deadline deadline) override;
  comm::Work start_reduce_scatter(ConstBuffer in, Buffer out, Deadline deadline) override;
  comm::Work start_all_to_all(ConstBuffer in, std::vector<std::int64_t> send_counts, Buffer out,
                              std::vector<std::int64_t> recv_counts, Deadline deadline) override;
  comm::Work start_send(ConstBuffer data, int to, int tag, Deadline deadline) override;
  comm::Work start_recv(Buffer data, int from, int tag, Deadline deadline) override;
  comm::Work start_broadcast(Buffer data, int root, Deadline deadline) override;
  comm::Work start_barrier(Deadline deadline) override;
  void start_abort(const comm::CommError& reason) override;
  std::string backend_name() const override { return "gloo"; }

 private:
  class LaneWork;
  class TransferWork;
  struct Posted {  // one transfer with what is needed to blame somebody for it
    std::shared_ptr<Transfer> transfer;
    int peer;
  };
  struct Call {  // one collective on the lane
    comm::OpKind op;
    Deadline deadline;
    ConstBuffer in;
    Buffer out;
    std::function<void(const Call&)> body;
    int tag = 0;
    comm::Ran ran = {};
    bool done = false;
    std::optional<comm::CommError> failure;
  };

  comm::Work enqueue(comm::OpKind op, Deadline deadline, ConstBuffer in, Buffer out,
                     std::function<void(const Call&)> body);
  void run_lane();
  std::shared_ptr<Call> take_gather_of(
      const Call& reduce);  // the second half of an all_reduce, if it is next
  void run_guarded(Call& call, const std::function<void()>& body);

  Posted post_send(const void* data, std::int64_t bytes, int to, int tag, comm::OpKind op,
                   Deadline deadline);
  Posted post_recv(void* data, std::int64_t bytes, int from, int tag, comm::OpKind op,
                   Deadline deadline);
  Posted post_send(const void* data, std::int64_t bytes, int to, const Call& call);
  Posted post_recv(void* data, std::int64_t bytes, int from, const Call& call);
  Posted posted(std::unique_ptr<Transfer> started, int peer);
  void finish(Posted& posted, comm::OpKind op, Deadline deadline);
  void finish_all(std::vector<Posted>& posted, const Call& call);
  void gather(const Call& call);
  void post_gather_recvs(const Call& call, std::vector<Posted>& posted);
  // Those segments whose last byte lies in (after, until].
  void post_gather_sends(const Call& call, std::int64_t after, std::int64_t until,
                         std::vector<Posted>& posted);
  // With `gather`, also what that call asks for.
  void reduce_segments(const Call& reduce, const Call* gather);
  void exchange(const Call& call, const std::vector<std::int64_t>& send_counts,
                const std::vector<std::int64_t>& recv_counts);
  void spread(int root, const Call& call);
  void rendezvous_round(const Call& call);

  // After a failure nothing may write to a buffer any more: ends what is still on the way.
  void stop_transfers();
  // Finds who is to blame, poisons, gives up the link, and throws.
  [[noreturn]] void fail(int peer, comm::OpKind op, Deadline deadline, const std::string& cause);

  std::unique_ptr<GlooLink> link_;  // leaked once poisoned
  std::shared_ptr<ProgressBoard> board_;

  std::mutex in_flight_mutex_;
  std::set<std::shared_ptr<Transfer>> in_flight_;  // not yet waited for, or given up in a failure
  std::mutex failure_mutex_;
  std::optional<comm::CommError> failure_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable lane_wake_, done_wake_;
  std::deque<std::shared_ptr<Call>> calls_;
  int next_tag_ = 0;
  bool stop_ = false;
  std::thread lane_;
  const comm::Siblings::Place place_;
};

}  // namespace lockstep::comm
