#include "lockstep/sim/pass_sim.h"

#include <algorithm>
#include <deque>

#include "lockstep/base/check.h"
#include "lockstep/sim/lane_clock.h"

namespace lockstep::sim {
namespace {

using parts::Kind;
using parts::Part;

class PassRun {
 public:
  PassRun(const parts::Pass& pass, std::span<const PartCost> costs, const Slowdown& slowdown)
      : pass_(pass), costs_(costs), slowdown_(slowdown) {}

  void step(std::size_t index) {
    const Part& part = pass_.parts[index];
    const Seconds start = clock_.now();
    if (part.kind == Kind::kWait) {
      const auto is_issued = [&] {
        return std::ranges::any_of(
            issued_, [&](const Issued& one) { return pass_.parts[one.part].out[0] == part.in[0]; });
      };
      while (is_issued()) advance();
    } else {
      const PartCost cost = costs_[next_++];
      clock_.begin(kList, cost.list);
      while (clock_.is_busy(kList)) advance();
      if (row_of(part.kind).collective) {
        issued_.push_back({index, cost.lane});
        begin_next();
      }
    }
    note(part, start, /*is_beside=*/false);
  }

  PassTimes end() {
    while (!issued_.empty()) advance();
    made_.length = clock_.now();
    return std::move(made_);
  }

 private:
  static constexpr int kList = 0, kLane = 1;
  struct Issued {
    std::size_t part;
    Seconds lane;
  };

  void note(const Part& part, Seconds start, bool is_beside) {
    made_.parts.push_back({0, to_text(part.kind), part.param, start, clock_.now(), is_beside});
  }
  void begin_next() {
    if (!issued_.empty() && !clock_.is_busy(kLane)) clock_.begin(kLane, issued_.front().lane);
  }
  // To the next end of anything.
  void advance() {
    clock_.set_factor(kList, clock_.is_busy(kLane) ? slowdown_.compute : 1);
    clock_.set_factor(kLane, clock_.is_busy(kList) ? slowdown_.comm : 1);
    LS_CHECK(clock_.advance(), "nothing is under way");
    while (const auto lane = clock_.take_ended()) {
      if (*lane != kLane) continue;
      note(pass_.parts[issued_.front().part], clock_.start_of(kLane), /*is_beside=*/true);
      issued_.pop_front();
    }
    begin_next();
  }

  const parts::Pass& pass_;
  std::span<const PartCost> costs_;
  const Slowdown slowdown_;
  std::size_t next_ = 0;  // of the costs
  LaneClock clock_{2};
  std::deque<Issued> issued_;  // and not done
  PassTimes made_;
};

}  // namespace

std::size_t count_parts(const parts::Pass& pass, parts::Sizes sizes) {
  std::size_t count = 0;
  for_each_part(
      pass, sizes,
      [&](std::size_t i, std::int64_t) { count += pass.parts[i].kind == Kind::kWait ? 0 : 1; },
      [] {});
  return count;
}

PassTimes simulate_pass(const parts::Pass& pass, parts::Sizes sizes,
                        std::span<const PartCost> costs, const Slowdown& slowdown) {
  LS_CHECK(costs.size() == count_parts(pass, sizes), costs.size(), " costs of parts");
  PassRun run(pass, costs, slowdown);
  for_each_part(pass, sizes, [&](std::size_t i, std::int64_t) { run.step(i); }, [] {});
  return run.end();
}

}  // namespace lockstep::sim
