// Where the threads of a LocalWorld meet (private to comm/local*). One engine thread completes
// operations.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/local/local.h"

namespace lockstep::comm {

// One member's part in one operation.
struct LocalOp : Operation {
  enum class State : std::uint8_t { kPosted, kExecuting, kStaged, kFailed };

  LocalOp(const Operation& operation, int by) : Operation(operation), member(by) {}

  const int member;
  State state = State::kPosted;  // guarded by the hub's mutex
  Error failure;                 // when kFailed
  Ran ran = {};                  // on the engine, when kStaged
  std::optional<Rank> culprit;
  std::condition_variable finished;  // with the hub's mutex: staged or failed

  bool chained = false;  // an earlier op of this member used some of its memory at issue
  std::shared_ptr<std::byte[]> snapshot;  // of an input that shares memory with its output
  std::optional<std::uint64_t> in_hash;   // of an input that must not change until the wait

  std::mutex delivery;                  // guards the staged result
  std::shared_ptr<std::byte[]> staged;  // holds the result from staging to delivery
  std::int64_t staged_offset = 0;       // of this member's part, bytes
  std::atomic<bool> delivered = false;

  const std::byte* source() const {
    return snapshot ? snapshot.get() : static_cast<const std::byte*>(in.data);
  }
  void deliver();
};

struct LocalGroup {
  Membership shape;                                         // name and members; index unused
  std::vector<std::deque<std::shared_ptr<LocalOp>>> calls;  // collectives by member, oldest first
  std::vector<std::vector<std::weak_ptr<LocalOp>>> issued;  // by member, perhaps not yet delivered
  using Channel = std::tuple<int, int, int>;                // sender, receiver, tag
  std::map<Channel, std::deque<std::shared_ptr<LocalOp>>> sends, recvs;
  std::map<Channel, std::int64_t> deliveries;  // so far; of collectives under {-1, -1, -1}
  std::optional<std::pair<Error, std::optional<Rank>>> failure;
};

class LocalHub {
 public:
  LocalHub(int size, LocalOptions options);
  ~LocalHub();

  int size() const { return size_; }
  void show(Rank rank, std::shared_ptr<const PositionCell> position);
  std::vector<LastSeen> last_seen();
  std::shared_ptr<LocalGroup> group(const Membership& membership);

  // Takes part in an operation. A group that has failed yields an op that has failed.
  void post(const std::shared_ptr<LocalGroup>& group, const std::shared_ptr<LocalOp>& op);
  // Blocks until the op is staged and delivers it; throws CommError, at its deadline too.
  void wait(LocalGroup& group, LocalOp& op);

  void fail(LocalGroup& group, Error error, std::optional<Rank> culprit);
  void lose(Rank rank, const std::string& why);

 private:
  // What the engine may complete next: the head collective of a group, or one matched transfer.
  struct Ready {
    std::shared_ptr<LocalGroup> group;
    std::vector<std::shared_ptr<LocalOp>> ops;
    Deadline held = Deadline::after({});  // back until then
  };

  void run();
  void execute(const Ready& ready);
  void enqueue_if_complete(const std::shared_ptr<LocalGroup>& group);
  void enqueue(const std::shared_ptr<LocalGroup>& group, std::vector<std::shared_ptr<LocalOp>> ops);
  // Waits until something may complete and puts one of those last; false: the world ends.
  bool choose(std::unique_lock<std::mutex>& lock);
  std::optional<Rank> lost_member(const LocalGroup& group, const LocalOp& op) const;
  void fail_locked(LocalGroup& group, Error error, std::optional<Rank> culprit = {});
  // Members that have not issued their part of the op; nobody when only the engine is to come.
  std::vector<Rank> who_is_missing(const LocalGroup& group, const LocalOp& op) const;
  // At the op's deadline: where members are missing, or the group's next operation is held back.
  void fail_if_late(LocalGroup& group, const LocalOp& op);

  const int size_;
  std::mutex mutex_;
  std::condition_variable engine_wake_;
  std::map<std::string, std::shared_ptr<LocalGroup>> groups_;
  std::map<Rank, std::string> lost_;
  std::map<Rank, std::shared_ptr<const PositionCell>> positions_;
  std::vector<Ready> ready_;
  std::mt19937_64 order_;
  const Lateness lateness_;
  bool stop_ = false;
  std::thread engine_;
};

}  // namespace lockstep::comm
