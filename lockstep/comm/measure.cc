#include "lockstep/comm/measure.h"

#include <algorithm>
#include <array>
#include <optional>

#include "lockstep/base/check.h"

namespace lockstep::comm {
namespace {

double median_of(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

double seconds_between(SteadyPoint from, SteadyPoint to) {
  return std::chrono::duration<double>(to - from).count();
}

// The buffers of operations of one size, and the operations on them.
class Meter {
 public:
  Meter(Communicator& comm, Bytes bytes, Deadline deadline)
      : comm_(comm),
        deadline_(deadline),
        piece_(std::max<std::int64_t>(1, bytes.value / 4 / comm.size())),
        full_(piece_ * comm.size(), 0.0f),  // stays finite however often it is summed
        other_(full_) {}

  Measurement whole(OpKind op, Ledger& ledger, Seconds budget) {
    const auto once = [&] {
      comm_.barrier(deadline_).wait();
      const SteadyPoint begin = std::chrono::steady_clock::now();
      if (op == OpKind::kSend)
        ping_pong();
      else
        start(op).wait();
      return seconds_between(begin, std::chrono::steady_clock::now());
    };
    once();  // warms caches and connections
    ledger.clear();
    const double first = once();
    const Bytes sent = ledger.entry(comm_.membership().axis, op).sent;
    const std::int64_t repetitions = agree(budget.value / first, 5, 1000);
    std::vector<double> times;
    for (std::int64_t i = 0; i < repetitions; ++i) times.push_back(once());
    const double median = median_of(times);
    return {op, bytes(), Seconds{op == OpKind::kSend ? median / 2 : median}, repetitions, sent};
  }

  std::vector<PhaseTimes> phases(OpKind op, Seconds budget) {
    const SteadyPoint begin = std::chrono::steady_clock::now();
    Samples samples;
    time_phases(op, samples);  // warms caches and connections
    samples = {};
    time_phases(op, samples);
    const double first = seconds_between(begin, std::chrono::steady_clock::now()) / 2;
    const std::int64_t times = agree(budget.value / std::max(first, 1e-6), 7, 2000);
    for (std::int64_t i = 1; i < times; ++i) time_phases(op, samples);
    return gathered(op, samples);
  }

 private:
  struct Samples {
    std::vector<double> issue, lane, finish;
  };

  static Buffer buffer(std::vector<float>& data) {
    return {data.data(), std::ssize(data), DType::kF32, {}};
  }
  Buffer own(std::vector<float>& data) const {
    return buffer(data).slice(piece_ * comm_.index(), piece_);
  }
  Bytes bytes() { return Bytes{buffer(full_).bytes()}; }

  // Member 0 decides how often; the others must repeat just as often.
  std::int64_t agree(double repetitions, std::int64_t least, std::int64_t most) {
    std::int64_t agreed =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(repetitions), least, most);
    comm_.broadcast({&agreed, 1, DType::kI64, {}}, 0, deadline_).wait();
    return agreed;
  }

  Work start(OpKind op) {
    switch (op) {
      case OpKind::kAllGather:
        return comm_.all_gather(own(other_), buffer(full_), deadline_);
      case OpKind::kReduceScatter:
        return comm_.reduce_scatter(buffer(full_), own(other_), deadline_);
      case OpKind::kAllReduce:
        return comm_.all_reduce(buffer(full_), deadline_);
      case OpKind::kAllToAll: {
        const std::vector<std::int64_t> counts(comm_.size(), piece_);
        return comm_.all_to_all(buffer(full_), counts, buffer(other_), counts, deadline_);
      }
      case OpKind::kBroadcast:
        return comm_.broadcast(buffer(full_), 0, deadline_);
      default:
        return comm_.barrier(deadline_);
    }
  }
  Work send(int to, int tag) { return comm_.send(buffer(full_), to, tag, deadline_); }
  Work recv(int from, int tag) { return comm_.recv(buffer(other_), from, tag, deadline_); }

  void ping_pong() {
    if (comm_.index() > 1) return;
    const int peer = 1 - comm_.index();
    if (comm_.index() == 0) send(peer, 0).wait();
    recv(peer, comm_.index() == 0 ? 1 : 0).wait();
    if (comm_.index() == 1) send(peer, 1).wait();
  }

  // In the phases of a send, members are in pairs.
  bool receives() const { return comm_.index() % 2 == 1; }
  bool has_peer() const { return receives() || comm_.index() + 1 < comm_.size(); }

  // A receiver has called before its sender begins, as programs have it.
  void time_phases(OpKind op, Samples& samples) {
    const bool is_send = op == OpKind::kSend;
    comm_.barrier(deadline_).wait();
    if (is_send && !receives()) comm_.barrier(deadline_).wait();
    if (is_send && !has_peer()) return;
    const SteadyPoint begin = std::chrono::steady_clock::now();
    Work work = !is_send     ? start(op)
                : receives() ? recv(comm_.index() - 1, 0)
                             : send(comm_.index() + 1, 0);
    const SteadyPoint called = std::chrono::steady_clock::now();
    if (is_send && receives()) comm_.barrier(deadline_).wait();
    const std::optional<Ran> ran = work.wait();
    const SteadyPoint end = std::chrono::steady_clock::now();
    const SteadyPoint complete = ran ? std::clamp(ran->end, called, end) : end;
    samples.issue.push_back(seconds_between(begin, called));
    samples.lane.push_back(seconds_between(called, complete));
    samples.finish.push_back(seconds_between(complete, end));
  }

  std::vector<PhaseTimes> gathered(OpKind op, Samples& samples) {
    std::array<double, 3> mine = {};
    if (!samples.issue.empty())
      mine = {median_of(samples.issue), median_of(samples.lane), median_of(samples.finish)};
    std::vector<double> all(3 * static_cast<std::size_t>(comm_.size()));
    comm_
        .all_gather({mine.data(), 3, DType::kF64, {}},
                    {all.data(), std::ssize(all), DType::kF64, {}}, deadline_)
        .wait();
    const auto of = [&](int member) { return all.data() + 3 * member; };
    if (op == OpKind::kSend)
      return {{OpKind::kSend, bytes(), {of(0)[0]}, {of(0)[1]}, {of(0)[2]}},
              {OpKind::kRecv, bytes(), {of(1)[0]}, {of(0)[1]}, {of(1)[2]}}};
    PhaseTimes mean{op, bytes(), {}, {of(0)[1]}, {}};
    for (int member = 0; member < comm_.size(); ++member) {
      mean.issue.value += of(member)[0] / comm_.size();
      mean.lane.value = std::min(mean.lane.value, of(member)[1]);
      mean.finish.value += of(member)[2] / comm_.size();
    }
    return {mean};
  }

  Communicator& comm_;
  const Deadline deadline_;
  const std::int64_t piece_;  // elements
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
      results.push_back(Meter(comm, size, deadline).whole(op, ledger, budget));
  return results;
}

std::vector<PhaseTimes> measure_phases(Communicator& comm, OpKind op,
                                       const std::vector<Bytes>& sizes, Seconds budget,
                                       Deadline deadline) {
  LS_CHECK(comm.size() >= 2);
  LS_CHECK(op == OpKind::kAllGather || op == OpKind::kReduceScatter || op == OpKind::kAllReduce ||
               op == OpKind::kSend,
           "no phases of ", to_text(op));
  std::vector<PhaseTimes> all;
  for (const Bytes size : sizes)
    for (const PhaseTimes& times : Meter(comm, size, deadline).phases(op, budget))
      all.push_back(times);
  return all;
}

}  // namespace lockstep::comm
