#include "lockstep/sim/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/text.h"
#include "lockstep/sim/stage_sim.h"
#include "tests/sim/random_program.h"

namespace lockstep::sim {
namespace {

using program::CommGroup;
using program::Op;
using program::OpKind;
using program::Program;
using program::StepShape;

// Costs are whole numbers of seconds, so that sums are exact in any order.
Cost by_kind(std::map<OpKind, double> seconds) {
  return [seconds = std::move(seconds)](Coord, const Op& op) {
    const auto found = seconds.find(op.kind);
    return Seconds{found == seconds.end() ? 0.0 : found->second};
  };
}

Program lowered(const char* name, pipeline::Shape shape, StepShape step, int units) {
  step.stage_begin = program::split_units(units, shape.stages());
  return program::lower(pipeline::find(name)->build(shape).value(), step).value();
}

Simulation simulated(const Program& program, const Cost& cost) {
  Result<Simulation> result = simulate(program, cost);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return *std::move(result);
}

// Every stage has one unit that takes time.
TEST(Simulator, FillAndDrainOfAPipeline) {
  const double f = 3, b = 5;
  for (const char* name : {"gpipe", "1f1b"})
    for (int p = 1; p <= 5; ++p)
      for (int m = 1; m <= 9; ++m)
        for (double hop : {0.0, 1.0}) {
          if (hop > 0 && std::string(name) != "gpipe") continue;
          const Program program = lowered(name, {p, 1, m}, {}, std::max(2, p));
          const Simulation run = simulated(program, [&](Coord coord, const Op& op) {
            if (op.kind == OpKind::kSend) return Seconds{hop};
            const auto& begin = program.step.stage_begin;
            if (op.unit != begin[static_cast<std::size_t>(coord.value)]) return Seconds{0};
            return Seconds{op.kind == OpKind::kForward    ? f
                           : op.kind == OpKind::kBackward ? b
                                                          : 0.0};
          });
          // Narayanan et al., arXiv 2104.04473, 2.2.1; a hop delays filling and draining alike.
          const double bubble = (p - 1) * (f + b) + 2 * (p - 1) * hop;
          EXPECT_EQ(run.makespan.value, m * (f + b) + bubble) << name << " p" << p << " m" << m;
          for (const Seconds waited : run.waited) EXPECT_EQ(waited.value, bubble);
        }
}

// One rank of ZeRO-3, every unit gathered one computation early: a gather hides behind the
// computation before it, and what is longer shows.
TEST(Simulator, GathersHideBehindComputation) {
  const int units = 6;
  const Program program = lowered("1f1b", {1, 1, 1}, {.zero = 3}, units);
  for (double gather : {1.0, 4.0, 7.0, 11.0}) {
    const double compute = 7;
    const Simulation run = simulated(program, by_kind({{OpKind::kForward, compute},
                                                       {OpKind::kBackward, compute},
                                                       {OpKind::kGather, gather}}));
    const auto& list = program.lists[0];
    const double exposed = std::max(0.0, gather - compute);
    int gathers = 0;
    double waited = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != OpKind::kWait) continue;
      if (list[static_cast<std::size_t>(list[i].target)].kind != OpKind::kGather) continue;
      const double length = (run.coords[0][i].end - run.coords[0][i].start).value;
      // Before the first there is nothing to hide behind.
      EXPECT_EQ(length, gathers == 0 ? gather : exposed)
          << "gather " << gathers << " of " << gather << " s";
      waited += length;
      ++gathers;
    }
    EXPECT_GE(gathers, 2 * units - 2);
    EXPECT_EQ(run.waited[0].value, waited);
    EXPECT_EQ(run.makespan.value, 2 * units * compute + waited);
  }
}

// Gradients of a whole step are reduced one after another while the last backward pass goes down
// the units; the first unit's can only begin after it.
TEST(Simulator, ReductionsInTheDrain) {
  for (int zero : {0, 1})
    for (int units : {2, 5})
      for (double reduce : {2.0, 5.0, 9.0}) {
        const double backward = 5;
        const Program program = lowered("gpipe", {1, 1, 3}, {.zero = zero}, units);
        const Simulation run =
            simulated(program, by_kind({{OpKind::kBackward, backward}, {OpKind::kReduce, reduce}}));
        const double drain = reduce + (units - 1) * std::max(0.0, reduce - backward);
        EXPECT_EQ(run.makespan.value, 3 * units * backward + drain)
            << "zero " << zero << ", " << units << " units, " << reduce << " s";
      }
}

// The rules of the header as equations between the times of a timeline. They have one solution:
// every time follows from earlier ones.
class Equations {
 public:
  Equations(const Program& program, const Cost& cost, const Cost& latency, const Simulation& run)
      : program_(program), cost_(cost), latency_(latency), run_(run) {
    deliver();
  }

  std::string first_broken() const {
    for (std::size_t c = 0; c < program_.lists.size(); ++c) {
      if (run_.coords[c].size() != program_.lists[c].size()) return "a list was not run to its end";
      double now = 0;
      std::map<CommGroup, double> lane;
      std::vector<double> done(program_.lists[c].size());
      for (std::size_t i = 0; i < program_.lists[c].size(); ++i) {
        const Op& op = program_.lists[c][i];
        const double end = end_of(static_cast<int>(c), i, now, lane, done);
        if (run_.coords[c][i].start.value != now || run_.coords[c][i].end.value != end)
          return "pipeline rank " + std::to_string(c) + ": " +
                 op_text(program_, {static_cast<int>(c)}, op);
        now = end;
      }
    }
    return "";
  }

 private:
  double start(std::size_t c, std::size_t i) const { return run_.coords[c][i].start.value; }

  // Transfers of a direction pass in the order in which they became ready.
  void deliver() {
    std::map<int, double> ready, length, latency;
    for (std::size_t c = 0; c < program_.lists.size(); ++c)
      for (std::size_t i = 0; i < program_.lists[c].size(); ++i) {
        const Op& op = program_.lists[c][i];
        if (op.kind != OpKind::kSend && op.kind != OpKind::kPostRecv) continue;
        ready[op.transfer] = std::max(ready[op.transfer], start(c, i));
        if (op.kind != OpKind::kSend) continue;
        length[op.transfer] = cost_({static_cast<int>(c)}, op).value;
        latency[op.transfer] = latency_({static_cast<int>(c)}, op).value;
      }
    std::vector<std::pair<double, int>> order;
    for (const auto& [transfer, time] : ready) order.emplace_back(time, transfer);
    std::ranges::sort(order);
    std::map<std::pair<Coord, Coord>, double> free;
    for (const auto& [time, transfer] : order) {
      const auto& about = program_.transfers[static_cast<std::size_t>(transfer)];
      double& channel = free[{about.from, about.to}];
      channel = std::max(channel, time) + length[transfer];
      left_[transfer] = channel;
      arrived_[transfer] = channel + latency[transfer];
    }
  }

  double end_of(int c, std::size_t i, double now, std::map<CommGroup, double>& lane,
                std::vector<double>& done) const {
    const Op& op = program_.lists[static_cast<std::size_t>(c)][i];
    switch (op.kind) {
      case OpKind::kSend:
      case OpKind::kPostRecv:
      case OpKind::kFree:
        return now;
      case OpKind::kWait: {
        const Op& target =
            program_.lists[static_cast<std::size_t>(c)][static_cast<std::size_t>(op.target)];
        if (target.kind == OpKind::kSend) return std::max(now, left_.at(target.transfer));
        if (target.kind == OpKind::kPostRecv) return std::max(now, arrived_.at(target.transfer));
        return std::max(now, done[static_cast<std::size_t>(op.target)]);
      }
      case OpKind::kNorm:
      case OpKind::kReduceTied:
        return last_to(op.kind) + cost_({c}, op).value;
      default:
        if (!is_async(op.kind)) return now + cost_({c}, op).value;
        lane[op.group] = std::max(lane[op.group], now) + cost_({c}, op).value;
        done[i] = lane[op.group];
        return now;
    }
  }

  // When the last coordinate came to a meeting: a member's timeline begins it at its own arrival.
  double last_to(OpKind kind) const {
    double last = 0;
    for (std::size_t c = 0; c < program_.lists.size(); ++c)
      for (std::size_t i = 0; i < program_.lists[c].size(); ++i)
        if (program_.lists[c][i].kind == kind) last = std::max(last, start(c, i));
    return last;
  }

  const Program& program_;
  const Cost& cost_;
  const Cost& latency_;
  const Simulation& run_;
  std::map<int, double> left_, arrived_;  // per transfer
};

TEST(Simulator, TimesOfRandomProgramsFollowFromTheRules) {
  int ops = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    const Cost cost = random_cost(seed), latency = random_cost(seed + 1000);
    const Simulation run = simulate(program, cost, {.latency = latency}).value();
    ASSERT_EQ(Equations(program, cost, latency, run).first_broken(), "") << "seed " << seed;
    double last = 0;
    for (const auto& coord : run.coords) {
      last = std::max(last, coord.back().end.value);
      ops += static_cast<int>(coord.size());
    }
    EXPECT_EQ(run.makespan.value, last) << "seed " << seed;
  }
  EXPECT_GT(ops, 10000);
}

// What a timeline says of each op's length, and of each transfer's latency.
class OwnLengths {
 public:
  OwnLengths(const Program& program, const Simulation& run, const Cost& meetings)
      : program_(program), lengths_(program.lists.size()), latencies_(program.transfers.size()) {
    for (std::size_t c = 0; c < program.lists.size(); ++c) {
      const auto& list = program.lists[c];
      for (const program::TimedOp& timed : run.coords[c]) {
        const Op& op = list[static_cast<std::size_t>(timed.op)];
        const bool meets = op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied;
        const Seconds length = timed.end - timed.start;
        lengths_[c][&op] = meets ? meetings({static_cast<int>(c)}, op) : length;
      }
      for (const program::TimedOp& timed : run.lanes[c]) {
        const Op& op = list[static_cast<std::size_t>(timed.op)];
        const Seconds length = timed.end - timed.start;
        lengths_[c][&op] = length;
        if (op.transfer < 0) continue;
        Seconds& latency = latencies_[static_cast<std::size_t>(op.transfer)];
        latency += op.kind == OpKind::kSend ? Seconds{} - length : length;
      }
    }
  }

  Simulation simulate_again() const {
    const auto cost = [&](Coord c, const Op& op) {
      return lengths_[static_cast<std::size_t>(c.value)].at(&op);
    };
    const auto latency = [&](Coord, const Op& op) {
      return latencies_[static_cast<std::size_t>(op.transfer)];
    };
    return simulate(program_, cost, {.latency = latency}).value();
  }

 private:
  const Program& program_;
  std::vector<std::map<const Op*, Seconds>> lengths_;
  std::vector<Seconds> latencies_;
};

// A timeline holds all that is needed to time it again: what it says of each op's length gives the
// same times, op by op.
TEST(Simulator, ItsOwnLengthsGiveTheSameTimes) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    const Cost cost = random_cost(seed);
    const Simulation run = simulate(program, cost, {.latency = random_cost(seed + 1000)}).value();
    for (std::size_t c = 0; c < program.lists.size(); ++c) {
      std::size_t asynchronous = 0;
      for (const Op& op : program.lists[c]) asynchronous += is_async(op.kind);
      EXPECT_EQ(run.lanes[c].size(), asynchronous) << "seed " << seed;
      for (const program::TimedOp& timed : run.lanes[c])
        EXPECT_GE(timed.start, run.coords[c][static_cast<std::size_t>(timed.op)].start);
    }
    const Simulation again = OwnLengths(program, run, cost).simulate_again();
    EXPECT_EQ(again.makespan, run.makespan) << "seed " << seed;
    EXPECT_EQ(again.coords, run.coords) << "seed " << seed;
    EXPECT_EQ(again.lanes, run.lanes) << "seed " << seed;
  }
}

// In a lowered program every lane has one order, so no op can make room for others by being slow,
// and no latency by being long.
TEST(Simulator, ASlowerOpNeverShortensAStep) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    const Cost cost = random_cost(seed), latency = random_cost(seed + 1000);
    const auto twice = [](const Cost& one) -> Cost {
      return [&one](Coord c, const Op& op) { return one(c, op) * 2.0; };
    };
    const double makespan = simulate(program, cost, {.latency = latency})->makespan.value;
    EXPECT_EQ(simulate(program, twice(cost), {.latency = twice(latency)})->makespan.value,
              2 * makespan);
    for (int trial = 0; trial < 10; ++trial) {
      const int c = dice.between(0, program.step.shape.coords - 1);
      const auto& list = program.lists[static_cast<std::size_t>(c)];
      const Op slow =
          list[static_cast<std::size_t>(dice.between(0, static_cast<int>(list.size()) - 1))];
      const double extra = dice.between(1, 2000000);
      const auto slowed = [&](const Cost& one) -> Cost {
        return [&](Coord at, const Op& op) {
          return one(at, op) + Seconds{at.value == c && op == slow ? extra : 0};
        };
      };
      for (const bool in_latency : {false, true}) {
        const double later = simulate(program, in_latency ? cost : slowed(cost),
                                      {.latency = in_latency ? slowed(latency) : latency})
                                 ->makespan.value;
        EXPECT_GE(later, makespan) << "seed " << seed;
        EXPECT_LE(later, makespan + extra * static_cast<double>(std::ranges::count(list, slow)))
            << "seed " << seed;
      }
    }
  }
}

// Lowering posts receives where its nominal times want them: at those, no sender waits, whatever
// the order of the schedule.
TEST(Simulator, AtNominalTimesAProgramTakesAsLongAsItsStages) {
  const Cost nominal = [](Coord, const Op& op) {
    return Seconds{op.kind == OpKind::kBackward                                    ? 2.0
                   : op.kind >= OpKind::kForward && op.kind <= OpKind::kWeightGrad ? 1.0
                                                                                   : 0.0};
  };
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Dice dice(seed);
    const pipeline::Shape shape = {dice.between(1, 6), dice.between(1, 3), dice.between(1, 9)};
    const auto placement = dice.coin() ? pipeline::Placement::kLoop : pipeline::Placement::kV;
    const auto order = random_schedule(dice, shape, placement);
    StepShape step;
    step.stage_begin = program::split_units(shape.stages() + dice.between(2, 9), shape.stages());
    StageCosts costs;
    for (std::size_t stage = 0; stage + 1 < step.stage_begin.size(); ++stage) {
      const double units = step.stage_begin[stage + 1] - step.stage_begin[stage];
      for (auto* times : {&costs.forward, &costs.input_grad, &costs.weight_grad})
        times->push_back({units});
    }
    EXPECT_EQ(simulated(program::lower(order, step).value(), nominal).makespan,
              simulate_stages(order, costs).makespan)
        << "seed " << seed;
  }
}

using Spans = std::vector<std::pair<double, double>>;

// Time of a span during which one of the others goes on.
double covered(double start, double end, Spans others) {
  std::ranges::sort(others);
  double sum = 0, from = start;
  for (const auto& [first, last] : others) {
    const double left = std::max(from, first), right = std::min(end, last);
    if (right > left) sum += right - left, from = right;
  }
  return sum;
}

// How much work each op of a timeline did at the speeds of the header, less what it was to do.
class WorkDone {
 public:
  WorkDone(const Program& program, const Simulation& run, const Cost& cost, Slowdown slowdown)
      : program_(program), run_(run), cost_(cost), slowdown_(slowdown) {
    for (std::size_t c = 0; c < program.lists.size(); ++c) {
      Spans& computing = computing_.emplace_back();
      for (const auto& timed : run.coords[c])
        if (computes(op_of(c, timed))) computing.emplace_back(timed.start.value, timed.end.value);
    }
    talking_.resize(program.lists.size());
    for (std::size_t c = 0; c < program.lists.size(); ++c)
      for (const auto& timed : run.lanes[c]) {
        if (op_of(c, timed).kind == OpKind::kPostRecv) continue;
        for (const int end : ends(c, timed))
          talking_[static_cast<std::size_t>(end)].emplace_back(timed.start.value, timed.end.value);
      }
  }

  double worst() const {
    double worst = 0;
    for (std::size_t c = 0; c < program_.lists.size(); ++c) {
      for (const auto& timed : run_.coords[c])
        if (computes(op_of(c, timed)))
          worst = std::max(worst, error(c, timed, talking_[c], slowdown_.compute));
      for (const auto& timed : run_.lanes[c]) {
        if (op_of(c, timed).kind == OpKind::kPostRecv) continue;
        Spans slow;
        for (const int end : ends(c, timed))
          slow.insert(slow.end(), computing_[static_cast<std::size_t>(end)].begin(),
                      computing_[static_cast<std::size_t>(end)].end());
        worst = std::max(worst, error(c, timed, slow, slowdown_.comm));
      }
    }
    return worst;
  }

 private:
  static bool computes(const Op& op) {
    return op.group == CommGroup::kNone && op.kind != OpKind::kWait && op.kind != OpKind::kFree;
  }
  const Op& op_of(std::size_t c, const program::TimedOp& timed) const {
    return program_.lists[c][static_cast<std::size_t>(timed.op)];
  }
  std::vector<int> ends(std::size_t c, const program::TimedOp& timed) const {
    const Op& op = op_of(c, timed);
    if (op.transfer < 0) return {static_cast<int>(c)};
    const auto& transfer = program_.transfers[static_cast<std::size_t>(op.transfer)];
    return {transfer.from.value, transfer.to.value};
  }
  double error(std::size_t c, const program::TimedOp& timed, const Spans& slow,
               double factor) const {
    const double length = (timed.end - timed.start).value;
    const double lost = covered(timed.start.value, timed.end.value, slow) * (1 - 1 / factor);
    const double work = cost_({static_cast<int>(c)}, op_of(c, timed)).value;
    return std::abs(length - lost - work);
  }

  const Program& program_;
  const Simulation& run_;
  const Cost& cost_;
  Slowdown slowdown_;
  std::vector<Spans> computing_, talking_;  // per coordinate
};

// An op ends when its work is done at the speeds it had; when it begins follows from the lengths,
// as without slowdown. Factors that are powers of two leave everything exact.
TEST(Slowdown, WorkIsDoneAtTheSpeedsOfTheHeader) {
  double longest = 0;
  for (const Slowdown slowdown :
       {Slowdown{2, 1}, Slowdown{1, 2}, Slowdown{4, 2}, Slowdown{1.2, 1}, Slowdown{1.3, 1.1}}) {
    const bool is_exact = slowdown.compute != 1.2 && slowdown.compute != 1.3;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      Dice dice(seed);
      const Program program = random_program(dice);
      const Cost cost = random_cost(seed), latency = random_cost(seed + 1000);
      const Simulation plain = simulate(program, cost, {.latency = latency}).value();
      const Simulation run =
          simulate(program, cost, {.latency = latency, .slowdown = slowdown}).value();
      const double makespan = run.makespan.value;
      ASSERT_LE(WorkDone(program, run, cost, slowdown).worst(), is_exact ? 0 : 1e-9 * makespan)
          << "seed " << seed;
      const Simulation again = OwnLengths(program, run, cost).simulate_again();
      ASSERT_NEAR(again.makespan.value, makespan, is_exact ? 0 : 1e-9 * makespan);
      if (is_exact) {
        ASSERT_EQ(again.coords, run.coords) << "seed " << seed;
      }
      // Lengths grow by at most the factor, and times are sums and maxima of them.
      const double factor = std::max(slowdown.compute, slowdown.comm);
      ASSERT_GE(makespan, plain.makespan.value * (1 - 1e-12)) << "seed " << seed;
      ASSERT_LE(makespan, plain.makespan.value * factor * (1 + 1e-12)) << "seed " << seed;
      longest = std::max(longest, makespan / plain.makespan.value);
    }
  }
  EXPECT_GT(longest, 1.2);  // it does something
}

TEST(Slowdown, OfOneChangesNoBit) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    const Cost whole = random_cost(seed);
    const Cost cost = [&](Coord c, const Op& op) { return whole(c, op) * (1.0 / 3); };
    const Cost none = [](Coord, const Op&) { return Seconds{}; };
    const Simulation plain = simulated(program, cost);
    ASSERT_EQ(Equations(program, cost, none, plain).first_broken(), "") << "seed " << seed;
    // What never overlaps is never slow.
    const Cost compute_alone = [&](Coord c, const Op& op) {
      return is_async(op.kind) ? Seconds{} : cost(c, op);
    };
    const Conditions slow = {.slowdown = {1.3, 1.3}};
    EXPECT_EQ(simulate(program, compute_alone, slow)->coords,
              simulated(program, compute_alone).coords);
  }
}

TEST(Slowdown, BelowOneIsRefused) {
  const Program program = lowered("1f1b", {2, 1, 1}, {}, 3);
  for (const Slowdown wrong : {Slowdown{0.9, 1}, Slowdown{1, 0}, Slowdown{1, -2}}) {
    const auto refused = simulate(program, by_kind({}), {.slowdown = wrong});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kOutOfRange);
  }
}

TEST(Simulator, RefusesWhatCanNotFinishAndNamesTheOps) {
  Program program = lowered("1f1b", {2, 1, 1}, {}, 3);
  const auto refused = [&] {
    const Result<Simulation> result = simulate(program, by_kind({}));
    EXPECT_FALSE(result.ok());
    return result.ok() ? "" : result.error().message;
  };
  // Coordinate 1 never comes to Norm.
  Program whole = program;
  std::erase_if(program.lists[1], [](const Op& op) { return op.kind == OpKind::kNorm; });
  EXPECT_EQ(refused(), "the program cannot finish: pipeline rank 0 stands at op " +
                           std::to_string(whole.lists[0].size() - 3) + ": norm");
  // Each sends what the other waits for only after its own wait.
  const Op send_act = {.kind = OpKind::kSend, .group = CommGroup::kPeer, .transfer = 0};
  const Op recv_act = {.kind = OpKind::kPostRecv, .group = CommGroup::kPeer, .transfer = 0};
  const Op send_grad = {.kind = OpKind::kSend, .group = CommGroup::kPeer, .transfer = 1};
  const Op recv_grad = {.kind = OpKind::kPostRecv, .group = CommGroup::kPeer, .transfer = 1};
  const Op wait_first = {.kind = OpKind::kWait, .target = 0};
  program.lists = {{recv_grad, wait_first, send_act}, {recv_act, wait_first, send_grad}};
  const std::string message = refused();
  EXPECT_NE(message.find("pipeline rank 0 stands at op 1: wait for"), std::string::npos) << message;
  EXPECT_NE(message.find("pipeline rank 1 stands at op 1: wait for"), std::string::npos) << message;
}

// What ops take of their own list: with it alone, a list is as long as all of its own parts, and a
// Wait does not count them as waiting.
TEST(Simulator, IssuingAndTakingOverOccupyTheList) {
  StepShape step;
  step.zero = 3;
  const Program program = lowered("1f1b", {1, 1, 2}, step, 5);
  Conditions conditions;
  conditions.host = [](Coord, const Op& op) {
    return Seconds{op.kind == OpKind::kWait ? 2.0 : 3.0};
  };
  const auto only_host = simulate(program, by_kind({}), conditions).value();
  double expected = 0;
  for (const Op& op : program.lists[0])
    expected += op.kind == OpKind::kWait ? 2 : is_async(op.kind) ? 3 : 0;
  EXPECT_EQ(only_host.makespan, Seconds{expected});
  EXPECT_EQ(only_host.waited[0], Seconds{0});

  // A gather begins on its lane when issuing it is over, and its Wait ends so much later.
  const auto gathers = simulate(program, by_kind({{OpKind::kGather, 100}}), conditions).value();
  const program::TimedOp lane = gathers.lanes[0].front();
  EXPECT_EQ(lane.start, gathers.coords[0][static_cast<std::size_t>(lane.op)].end);
  EXPECT_EQ(lane.end, lane.start + Seconds{100});
  for (std::size_t i = 0; i < program.lists[0].size(); ++i)
    if (program.lists[0][i].kind == OpKind::kWait && program.lists[0][i].target == lane.op) {
      EXPECT_EQ(gathers.coords[0][i].end, lane.end + Seconds{2});
    }
}

TEST(Simulator, NothingOfTheirOwnListChangesNothing) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    Conditions none;
    none.host = [](Coord, const Op&) { return Seconds{}; };
    const auto with = simulate(program, random_cost(seed), none).value();
    const auto without = simulate(program, random_cost(seed)).value();
    EXPECT_EQ(with.coords, without.coords);
    EXPECT_EQ(with.lanes, without.lanes);
    EXPECT_EQ(with.waited, without.waited);
    Conditions some;
    some.host = random_cost(seed + 1);
    EXPECT_GE(simulate(program, random_cost(seed), some).value().makespan, without.makespan);
  }
}

}  // namespace
}  // namespace lockstep::sim
