#include "lockstep/comm/measure.h"

#include <algorithm>
#include <functional>

#include "lockstep/base/check.h"

namespace lockstep::comm {
namespace {

class Meter {
 public:
  Meter(Communicator& comm, Ledger& ledger, Bytes bytes, Deadline deadline)
      : comm_(comm),
        ledger_(ledger),
        deadline_(deadline),
        piece_(std::max<std::int64_t>(1, bytes.value / 4 / comm.size())),
        full_(static_cast<std::size_t>(piece_ * comm.size()),
              0.0f),  // stays finite however often it is summed
        other_(full_) {}

  Measurement run(OpKind op, Seconds budget) {
    const std::function<void()> work = operation(op);
    const RealClock clock;
    const auto once = [&] {
      comm_.barrier(deadline_).wait();
      const TimePoint start = clock.now();
      work();
      return (clock.now() - start).value;
    };
    once();  // warms caches and connections
    ledger_.clear();
    const double first = once();
    const Bytes sent = ledger_.entry(comm_.membership().axis, op).sent;
    const std::int64_t repetitions =
        agree(std::clamp<std::int64_t>(static_cast<std::int64_t>(budget.value / first), 5, 1000));
    std::vector<double> times;
    for (std::int64_t i = 0; i < repetitions; ++i) times.push_back(once());
    std::ranges::nth_element(times, times.begin() + repetitions / 2);
    const double median = times[static_cast<std::size_t>(repetitions / 2)];
    return {op, Bytes{buffer(full_).bytes()}, Seconds{op == OpKind::kSend ? median / 2 : median},
            repetitions, sent};
  }

 private:
  static Buffer buffer(std::vector<float>& data) {
    return {data.data(), static_cast<std::int64_t>(data.size()), DType::kF32, {}};
  }
  Buffer own(std::vector<float>& data) const {
    return buffer(data).slice(piece_ * comm_.index(), piece_);
  }

  // Member 0 decides how often; the others must repeat just as often.
  std::int64_t agree(std::int64_t repetitions) {
    comm_.broadcast({&repetitions, 1, DType::kI64, {}}, 0, deadline_).wait();
    return repetitions;
  }

  std::function<void()> operation(OpKind op) {
    switch (op) {
      case OpKind::kAllGather:
        return [this] { comm_.all_gather(own(other_), buffer(full_), deadline_).wait(); };
      case OpKind::kReduceScatter:
        return [this] { comm_.reduce_scatter(buffer(full_), own(other_), deadline_).wait(); };
      case OpKind::kAllReduce:
        return [this] { comm_.all_reduce(buffer(full_), deadline_).wait(); };
      case OpKind::kAllToAll:
        return [this] {
          const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm_.size()), piece_);
          comm_.all_to_all(buffer(full_), counts, buffer(other_), counts, deadline_).wait();
        };
      case OpKind::kBroadcast:
        return [this] { comm_.broadcast(buffer(full_), 0, deadline_).wait(); };
      case OpKind::kSend:
        return [this] { ping_pong(); };
      default:
        return [this] { comm_.barrier(deadline_).wait(); };
    }
  }

  void ping_pong() {
    if (comm_.index() > 1) return;
    const int peer = 1 - comm_.index();
    if (comm_.index() == 0) comm_.send(buffer(full_), peer, 0, deadline_).wait();
    comm_.recv(buffer(other_), peer, comm_.index() == 0 ? 1 : 0, deadline_).wait();
    if (comm_.index() == 1) comm_.send(buffer(full_), peer, 1, deadline_).wait();
  }

  Communicator& comm_;
  Ledger& ledger_;
  Deadline deadline_;
  std::int64_t piece_;  // elements
  std::vector<float> full_, other_;
};

}  // namespace

std::vector<Measurement> measure(Communicator& comm, Ledger& ledger, const std::vector<OpKind>& ops,
                                 const std::vector<Bytes>& sizes, Seconds budget,
                                 Deadline deadline) {
  LS_CHECK(comm.size() >= 2);
  std::vector<Measurement> results;
  for (const OpKind op : ops)
    for (const Bytes size : sizes)
      results.push_back(Meter(comm, ledger, size, deadline).run(op, budget));
  return results;
}

}  // namespace lockstep::comm
