// Collective operations of one group of ranks on plain buffers. Backends of processes are rows of a
// catalogue (backend.h, backends/backends.h): `gloo`, `nccl`; `local` is for threads of a process.
// One contract test runs over all that work on a CPU.
//
// What every backend promises:
//
//   order    Collectives run in the order in which they are issued, and one that is issued later on
//            the same communicator may read what an earlier one writes, without a wait in between.
//            Not so send and recv, which match at once, nor an all_reduce that has to pad.
//   buffers  From issue to the end of Work::wait, inputs are not written and outputs hold nothing
//            usable.
//   bits     Reductions on CPU memory add in the one tree of tree_sum.h, and an all_reduce is an
//            all_gather of a reduce_scatter. A device's backend has orders of its own.
//   streams  An operation on a device's memory comes behind all that the issuing thread's current
//            stream was given, and Work::wait puts that stream behind the operation. The host does
//            not wait.
//   bytes    The ledger counts logical traffic as ledger.h defines it.
//   failure  A lost or late peer ends the wait with a CommError that names the rank and the
//            operation, at the latest one second after the operation's deadline. All communicators
//            of the rank are then poisoned: waits in progress end and every further call throws.
//
// Thread rule: one thread issues; any thread may wait for a Work or call abort. A Work must be gone
// before its communicator is destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/buffer.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/ids.h"
#include "lockstep/comm/ledger.h"
#include "lockstep/comm/position.h"

namespace lockstep::comm {

// A peer was lost or late.
class CommError : public WorldError {
 public:
  CommError(Error error, OpKind op, std::optional<Rank> culprit)
      : WorldError(std::move(error)), op_(op), culprit_(culprit) {}
  OpKind op() const { return op_; }
  std::optional<Rank> culprit() const { return culprit_; }  // empty when it cannot be known

 private:
  OpKind op_;
  std::optional<Rank> culprit_;
};

// From when the operation had its lane until it was complete on this rank.
struct Ran {
  SteadyPoint begin, end;
};

class Communicator;

// One started operation. Must be waited for before its buffers are touched. Destruction before that
// aborts the communicator: it never waits for a peer, and leaves no transfer behind that could
// still touch the buffers.
class [[nodiscard]] Work {
 public:
  // What a backend has left to do: waits for the end, and tells when it ran where it learns of that
  // before it is waited for. Called at most once; throws CommError.
  using Finish = std::function<std::optional<Ran>()>;

  Work() = default;  // already done
  Work(Communicator& owner, Finish finish) : owner_(&owner), finish_(std::move(finish)) {}
  Work(Work&& other) noexcept
      : owner_(other.owner_), finish_(std::exchange(other.finish_, nullptr)) {}
  Work& operator=(Work&& other) noexcept;
  ~Work();

  // When it ran, where that is known. A second wait returns nothing at once.
  std::optional<Ran> wait();

 private:
  Communicator* owner_ = nullptr;
  Finish finish_;
};

// The communicators of one rank. The first failure of any ends all of them, because a peer that
// waits for this rank in another group would wait in vain. Any thread.
class Siblings {
 public:
  // Idempotent; the first failure counts, for later members too.
  void fail(const CommError& first);
  void check() const;  // throws the first failure

  // A member for as long as it lives. Belongs last into a backend's communicator, so that it goes
  // first.
  class Place {
   public:
    Place(Siblings& siblings, Communicator& communicator);
    ~Place();
    Place(Place&&) = delete;

   private:
    Siblings& siblings_;
    Communicator& communicator_;
  };

 private:
  mutable std::mutex mutex_;
  std::set<Communicator*> members_;
  std::optional<CommError> failure_;
};

// One rank's place in one group.
struct Membership {
  std::string name;           // unique in the world, for example "dp@tp1.pp0"
  std::string axis;           // what the ledger files it under
  std::vector<Rank> members;  // world ranks in group order
  int index = 0;              // position of this rank in `members`

  int size() const { return static_cast<int>(members.size()); }
  Rank rank() const { return members[index]; }
};

// One member's part in one operation, as a backend gets it.
struct Operation {
  OpKind kind;
  ConstBuffer in;  // of broadcast: at the root; none of recv and barrier
  Buffer out;      // of broadcast: at the others; none of send and barrier
  Deadline deadline;
  int peer = 0;  // of send and recv: the other member; of broadcast: the root
  int tag = 0;   // of send and recv
  std::vector<std::int64_t> send_counts = {}, recv_counts = {};  // of all_to_all
};

class Communicator {
 public:
  // Both must outlive the communicator.
  Communicator(Membership membership, Ledger& ledger, Siblings& siblings);
  virtual ~Communicator() = default;
  Communicator(Communicator&&) = delete;

  const Membership& membership() const { return membership_; }
  int size() const { return membership_.size(); }
  int index() const { return membership_.index; }

  // out = in of member 0, in of member 1, ... In place when `in` is this member's piece of `out`.
  Work all_gather(ConstBuffer in, Buffer out, Deadline deadline);

  // out = piece `index` of the sum of every member's `in`. In place when `out` is that piece of
  // `in`; the rest of `in` is then undefined.
  Work reduce_scatter(ConstBuffer in, Buffer out, Deadline deadline);

  // data = the sum of every member's data. Any count; one that does not divide by size() is padded
  // inside.
  Work all_reduce(Buffer data, Deadline deadline);

  // Sends send_counts[i] elements to member i, the pieces lying one after another in `in`, and
  // receives recv_counts[i] from member i into consecutive pieces of `out`. No overlap of `in` and
  // `out`.
  Work all_to_all(ConstBuffer in, std::span<const std::int64_t> send_counts, Buffer out,
                  std::span<const std::int64_t> recv_counts, Deadline deadline);

  // Point to point, matched by (sender, receiver, tag) in the order of issue. 0 <= tag < 2^30.
  Work send(ConstBuffer data, int to, int tag, Deadline deadline);
  Work recv(Buffer data, int from, int tag, Deadline deadline);

  Work broadcast(Buffer data, int root, Deadline deadline);
  Work barrier(Deadline deadline);

  // Gives up this one: waits in progress and all later calls fail at once with `reason`.
  // Idempotent.
  void abort(const std::string& reason);
  // The same, with the failure of a sibling as the reason.
  void abort(const CommError& reason);

  // "gloo group dp@tp1.pp0, member 2 of 4".
  std::string describe() const;

  bool is_poisoned() const { return poisoned_.load(); }

 protected:
  // What a backend implements. Arguments have been checked, traffic has been counted, and empty
  // transfers have been dealt with. One of CPU memory never sees an all_reduce, nor a group of one.
  virtual Work start(const Operation& operation) = 0;
  virtual void start_abort(const CommError& reason) = 0;
  virtual std::string backend_name() const = 0;

  // After a failure of this communicator: poisons it and aborts its siblings. Any thread.
  void poison(const CommError& first);
  // kPoisoned, quoting the first failure.
  void throw_if_poisoned(OpKind op) const;
  // The first failure, for whoever was waiting in `op` when it came. REQUIRES: is_poisoned().
  [[noreturn]] void throw_first_failure(OpKind op) const;

 private:
  // Counts what this member sends; starts what has anything to do.
  Work issue(const Operation& operation, std::int64_t sent);
  void remember(const CommError& first);

  const Membership membership_;
  Ledger& ledger_;
  Siblings& siblings_;
  std::atomic<bool> poisoned_ = false;
  mutable std::mutex poison_mutex_;
  std::optional<CommError> first_failure_;
};

// One rank's door to all others: connects groups. Backends implement it; see backend.h.
// Thread rule: one thread.
class World {
 public:
  virtual ~World() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Makes the communicator of one group. Called by the members of the group only, by each of them
  // once for a given name. `members` holds world ranks in group order and contains rank().
  virtual std::unique_ptr<Communicator> connect(std::string name, std::string axis,
                                                std::vector<Rank> members, Deadline deadline) = 0;
  // The same for memory of device(). Names of both kinds of group may be equal.
  virtual std::unique_ptr<Communicator> connect_device(std::string name, std::string axis,
                                                       std::vector<Rank> members,
                                                       Deadline deadline) {
    return connect(std::move(name), std::move(axis), std::move(members), deadline);
  }
  // The same for messages between neighbours, of which the last and the first are two as well: a
  // backend that connects a pair at its first message, and waits for both ends, has done so before
  // it returns. All members call it.
  virtual std::unique_ptr<Communicator> connect_ring(std::string name, std::string axis,
                                                     std::vector<Rank> members, Deadline deadline) {
    return connect(std::move(name), std::move(axis), std::move(members), deadline);
  }
  // What this rank computes on; connect() is for the memory of its host.
  virtual Device device() const { return {}; }
  // The group of all ranks, in their order.
  std::unique_ptr<Communicator> connect_all(std::string name, std::string axis, Deadline deadline);

  Ledger& ledger() { return shared_->ledger; }

  // Throws the first failure of any communicator of this rank. Any thread.
  void check() const { shared_->siblings.check(); }

  // Where this rank stands, for the others to read.
  PositionCell& position() { return shared_->position; }
  // Where all ranks were last seen, by rank; none where the backend does not know. For after a
  // failure: takes up to a second. Any thread.
  virtual std::vector<LastSeen> last_seen() { return {}; }

 protected:
  // Checks what connect was given and finds this rank in it.
  Membership membership(std::string name, std::string axis, std::vector<Rank> members) const;

  World() = default;
  // In front of another: one rank, with one ledger, one position and one failure.
  explicit World(const World* behind) : shared_(behind->shared_) {}

  Siblings& siblings() { return shared_->siblings; }

  // For whoever shows it to the others, perhaps beyond the life of this world.
  std::shared_ptr<const PositionCell> shared_position() const {
    return {shared_, &shared_->position};
  }

 private:
  struct Shared {
    Ledger ledger;
    Siblings siblings;
    PositionCell position;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace lockstep::comm
