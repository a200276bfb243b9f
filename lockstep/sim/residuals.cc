#include "lockstep/sim/residuals.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/op_table.h"

namespace lockstep::sim {
namespace {

using program::Op;
using program::OpKind;
using program::RankTimeline;

// Rows that are no kind of op, behind those that are.
enum Outside : int { kBetween = program::kNumOpKinds, kBefore, kAfter };
using Key = std::pair<Cause, int>;  // and kind of op, or Outside
using Account = std::map<Key, double>;

// Shorter than in sentences, where a row of a table says it.
std::string kind_text(int kind) {
  static const std::map<int, const char*> kShort = {
      {kBetween, "between ops"},
      {kBefore, "before the first op"},
      {kAfter, "after the last op"},
      {static_cast<int>(OpKind::kCount), "count"},
      {static_cast<int>(OpKind::kReduceAcross), "reduce across"},
      {static_cast<int>(OpKind::kReduceTied), "reduce tied"},
      {static_cast<int>(OpKind::kReduceReplicated), "reduce replicated"}};
  const auto found = kShort.find(kind);
  return std::string(found == kShort.end() ? op_row(static_cast<OpKind>(kind)).words
                                           : found->second);
}

Cause cause_of(const Op& op) {
  if (op.transfer >= 0) return Cause::kHop;
  return is_async(op.kind) || is_blocking_collective(op.kind) || op.kind == OpKind::kCount
             ? Cause::kCollective
             : Cause::kCompute;
}

// Where the time of each rank's list went.
class Accounts {
 public:
  Accounts(const program::Program& program, const std::vector<RankTimeline>& ranks)
      : program_(program) {
    for (const RankTimeline& rank : ranks)
      for (const program::TimedOp& timed : rank.ops) {
        makespan_ = std::max(makespan_, timed.end);
        const OpKind kind = op_of(rank, timed.op).kind;
        if (is_blocking_collective(kind))
          last_arrival_[kind] = std::max(last_arrival_[kind], timed.start);
      }
    for (const RankTimeline& rank : ranks) add(rank);
    for (auto& [key, sum] : account_) sum /= static_cast<double>(ranks.size());
  }

  Seconds makespan() const { return makespan_; }
  const Account& account() const { return account_; }

 private:
  const Op& op_of(const RankTimeline& rank, std::int32_t op) const {
    return program_.list(rank.coord)[op];
  }

  void add(Cause cause, int what, Seconds time) {
    if (time != Seconds{}) account_[{cause, what}] += time.value;
  }

  void add(const RankTimeline& rank) {
    std::map<std::int32_t, Seconds> begins;  // of ops on their lanes
    for (const program::TimedOp& lane : rank.lanes) begins[lane.op] = lane.start;
    Seconds before;
    for (const program::TimedOp& timed : rank.ops) {
      const bool is_first = &timed == &rank.ops.front();
      add(is_first ? Cause::kWait : Cause::kList, is_first ? kBefore : kBetween,
          timed.start - before);
      before = timed.end;
      const Op& op = op_of(rank, timed.op);
      if (is_blocking_collective(op.kind))
        split(op, timed, last_arrival_.at(op.kind));
      else if (op.kind != OpKind::kWait)
        add(cause_of(op), static_cast<int>(op.kind), timed.end - timed.start);
      else if (const auto begin = begins.find(op.target); begin != begins.end())
        split(op_of(rank, op.target), timed, begin->second);
      else
        split(op_of(rank, op.target), timed, timed.end);
    }
    add(Cause::kWait, kAfter, makespan_ - before);
  }

  // Until `begin` it waited, from then on it was busy with `op`.
  void split(const Op& op, const program::TimedOp& timed, Seconds begin) {
    const Seconds from = std::clamp(begin, timed.start, timed.end);
    add(Cause::kWait, static_cast<int>(op.kind), from - timed.start);
    add(cause_of(op), static_cast<int>(op.kind), timed.end - from);
  }

  const program::Program& program_;
  std::map<OpKind, Seconds> last_arrival_;  // when the last rank came
  Seconds makespan_;
  Account account_;
};

}  // namespace

std::string_view to_text(Cause cause) {
  constexpr std::string_view kNames[] = {"compute", "p2p", "collective", "wait", "list"};
  return kNames[static_cast<std::size_t>(cause)];
}

Residual Residuals::total(Cause cause) const {
  Residual sum{cause, std::string(to_text(cause)), {}, {}};
  for (const Residual& row : rows)
    if (row.cause == cause) {
      sum.predicted += row.predicted;
      sum.measured += row.measured;
    }
  return sum;
}

Residuals residuals(const program::Program& program, const Simulation& predicted,
                    const program::StepTimeline& measured) {
  std::vector<RankTimeline> simulated;
  for (const RankTimeline& rank : measured.ranks) {
    const auto c = static_cast<std::size_t>(rank.coord.value);
    LS_CHECK(c < predicted.coords.size() && rank.ops.size() == predicted.coords[c].size(), "rank ",
             rank.rank.value, " has times of another program");
    simulated.push_back({rank.rank, rank.coord, predicted.coords[c], predicted.lanes[c]});
  }
  const Accounts expected(program, simulated), actual(program, measured.ranks);
  Account keys = expected.account();
  keys.insert(actual.account().begin(), actual.account().end());
  Residuals result;
  result.predicted = expected.makespan();
  result.measured = actual.makespan();
  for (const auto& [key, unused] : keys) {
    const auto of = [&key = key](const Account& account) {
      const auto found = account.find(key);
      return Seconds{found == account.end() ? 0.0 : found->second};
    };
    const bool is_outside = key.second >= kBetween;
    const std::string prefix = key.first == Cause::kWait && !is_outside ? "for " : "";
    result.rows.push_back(
        {key.first, prefix + kind_text(key.second), of(expected.account()), of(actual.account())});
  }
  return result;
}

}  // namespace lockstep::sim
