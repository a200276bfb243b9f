#include "lockstep/sim/simulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/schedule/effects.h"
#include "lockstep/schedule/lower.h"
#include "lockstep/schedule/text.h"

namespace lockstep::sim {
namespace {

using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::Reach;
using schedule::StepShape;

// Costs are whole numbers of seconds, so that sums are exact in any order.
Cost by_kind(std::map<OpKind, double> seconds) {
  return [seconds = std::move(seconds)](Coord, const Op& op) {
    const auto found = seconds.find(op.kind);
    return Seconds{found == seconds.end() ? 0.0 : found->second};
  };
}

Program lowered(const char* name, schedule::Shape shape, StepShape step, int units) {
  step.stage_begin = schedule::split_units(units, shape.stages());
  return schedule::lower(schedule::find(name)->build(shape).value(), step).value();
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

// Gradients of a whole step are reduced one after another while the last backward pass goes down the
// units; the first unit's can only begin after it.
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

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  int between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 engine_;
};

// Any order a pipeline could run in.
schedule::Schedule random_schedule(Dice& dice, const schedule::Shape& shape,
                                   schedule::Placement placement) {
  using schedule::PassKind;
  const int stages = shape.stages(), m = shape.microbatches;
  std::vector<int> forward(static_cast<std::size_t>(stages)), backward = forward;
  std::vector<std::vector<schedule::Pass>> timetable(static_cast<std::size_t>(shape.coords));
  for (int left = 2 * stages * m; left > 0; --left) {
    std::vector<schedule::Pass> ready;
    for (int s = 0; s < stages; ++s) {
      const auto at = static_cast<std::size_t>(s);
      if (forward[at] < m && (s == 0 || forward[at] < forward[at - 1]))
        ready.push_back({PassKind::kForward, {s}, {forward[at]}});
      if (backward[at] < forward[at] && (s + 1 == stages || backward[at] < backward[at + 1]))
        ready.push_back({PassKind::kBackward, {s}, {backward[at]}});
    }
    const auto pass =
        ready[static_cast<std::size_t>(dice.between(0, static_cast<int>(ready.size()) - 1))];
    ++(pass.kind == PassKind::kForward ? forward
                                       : backward)[static_cast<std::size_t>(pass.stage.value)];
    timetable[static_cast<std::size_t>(coord_of(placement, pass.stage, shape.coords).value)]
        .push_back(pass);
  }
  return schedule::Schedule::create(shape, placement, std::move(timetable)).value();
}

Program random_program(Dice& dice) {
  const schedule::Shape shape = {dice.between(1, 4), dice.between(1, 2), dice.between(1, 5)};
  const auto placement =
      dice.between(0, 1) == 0 ? schedule::Placement::kLoop : schedule::Placement::kV;
  const int units = std::max(2, shape.stages()) + dice.between(0, 4);
  StepShape step;
  step.stage_begin = schedule::split_units(units, shape.stages());
  step.zero = dice.between(0, 3);
  step.period = dice.between(0, 1) == 0 ? schedule::Period::kStep : schedule::Period::kMicrobatch;
  step.replicas = dice.between(0, 1) == 1;
  step.tied = dice.between(0, 1) == 1;
  for (int unit = 0; unit < units; ++unit)
    step.recompute.push_back(unit > 0 && unit + 1 < units && dice.between(0, 1) == 1);
  step.resident_units = dice.between(1, 3);
  step.prefetch = dice.between(0, 3);
  return schedule::lower(random_schedule(dice, shape, placement), step).value();
}

// A cost for every op, fixed by its numbers.
Cost random_cost(std::uint64_t seed) {
  return [stream = RandomStream(seed, "cost")](Coord coord, const Op& op) {
    std::uint64_t number =
        static_cast<std::uint64_t>(coord.value) * 18 + static_cast<std::uint64_t>(op.kind);
    for (int part : {op.unit, op.microbatch, op.period, op.transfer})
      number = number * 256 + static_cast<std::uint64_t>(part + 1);
    return Seconds{static_cast<double>(stream.below(1000003, number))};
  };
}

// The rules of the header as equations between the times of a timeline. They have one solution:
// every time follows from earlier ones.
class Equations {
 public:
  Equations(const Program& program, const Cost& cost, const Simulation& run)
      : program_(program), cost_(cost), run_(run) {
    deliver();
  }

  std::string first_broken() const {
    for (std::size_t c = 0; c < program_.lists.size(); ++c) {
      if (run_.coords[c].size() != program_.lists[c].size()) return "a list was not run to its end";
      double now = 0;
      std::map<Reach, double> lane;
      std::vector<double> done(program_.lists[c].size());
      for (std::size_t i = 0; i < program_.lists[c].size(); ++i) {
        const Op& op = program_.lists[c][i];
        const double end = end_of(static_cast<int>(c), i, now, lane, done);
        if (run_.coords[c][i].start.value != now || run_.coords[c][i].end.value != end)
          return "coordinate " + std::to_string(c) + ": " +
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
    std::map<int, double> ready, length;
    for (std::size_t c = 0; c < program_.lists.size(); ++c)
      for (std::size_t i = 0; i < program_.lists[c].size(); ++i) {
        const Op& op = program_.lists[c][i];
        if (op.kind != OpKind::kSend && op.kind != OpKind::kPostRecv) continue;
        ready[op.transfer] = std::max(ready[op.transfer], start(c, i));
        if (op.kind == OpKind::kSend) length[op.transfer] = cost_({static_cast<int>(c)}, op).value;
      }
    std::vector<std::pair<double, int>> order;
    for (const auto& [transfer, time] : ready) order.emplace_back(time, transfer);
    std::ranges::sort(order);
    std::map<std::pair<Coord, Coord>, double> free;
    for (const auto& [time, transfer] : order) {
      const auto& about = program_.transfers[static_cast<std::size_t>(transfer)];
      double& channel = free[{about.from, about.to}];
      channel = std::max(channel, time) + length[transfer];
      arrived_[transfer] = channel;
    }
  }

  double end_of(int c, std::size_t i, double now, std::map<Reach, double>& lane,
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
        return std::max(now, target.transfer >= 0 ? arrived_.at(target.transfer)
                                                  : done[static_cast<std::size_t>(op.target)]);
      }
      case OpKind::kNorm:
      case OpKind::kReduceTied:
        return last_to(op.kind) + cost_({c}, op).value;
      default:
        if (!is_async(op.kind)) return now + cost_({c}, op).value;
        lane[op.reach] = std::max(lane[op.reach], now) + cost_({c}, op).value;
        done[i] = lane[op.reach];
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
  const Simulation& run_;
  std::map<int, double> arrived_;
};

TEST(Simulator, TimesOfRandomProgramsFollowFromTheRules) {
  int ops = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    const Cost cost = random_cost(seed);
    const Simulation run = simulated(program, cost);
    ASSERT_EQ(Equations(program, cost, run).first_broken(), "") << "seed " << seed;
    double last = 0;
    for (const auto& coord : run.coords) {
      last = std::max(last, coord.back().end.value);
      ops += static_cast<int>(coord.size());
    }
    EXPECT_EQ(run.makespan.value, last) << "seed " << seed;
  }
  EXPECT_GT(ops, 10000);
}

// A timeline holds all that is needed to time it again: what it says of each op's length gives the
// same times, op by op.
TEST(Simulator, ItsOwnLengthsGiveTheSameTimes) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Dice dice(seed);
    const Program program = random_program(dice);
    const Cost cost = random_cost(seed);
    const Simulation run = simulated(program, cost);
    std::vector<std::map<const Op*, Seconds>> lengths(program.lists.size());
    for (std::size_t c = 0; c < program.lists.size(); ++c) {
      const auto& list = program.lists[c];
      for (const schedule::TimedOp& timed : run.coords[c]) {
        const Op& op = list[static_cast<std::size_t>(timed.op)];
        const bool meets = op.kind == OpKind::kNorm || op.kind == OpKind::kReduceTied;
        lengths[c][&op] = meets ? cost({static_cast<int>(c)}, op) : timed.end - timed.start;
      }
      std::size_t asynchronous = 0;
      for (const Op& op : list) asynchronous += is_async(op.kind);
      EXPECT_EQ(run.lanes[c].size(), asynchronous) << "seed " << seed;
      for (const schedule::TimedOp& timed : run.lanes[c]) {
        EXPECT_GE(timed.start, run.coords[c][static_cast<std::size_t>(timed.op)].start);
        lengths[c][&list[static_cast<std::size_t>(timed.op)]] = timed.end - timed.start;
      }
    }
    const Simulation again = simulated(program, [&](Coord c, const Op& op) {
      return lengths[static_cast<std::size_t>(c.value)].at(&op);
    });
    EXPECT_EQ(again.makespan, run.makespan) << "seed " << seed;
    EXPECT_EQ(again.coords, run.coords) << "seed " << seed;
    EXPECT_EQ(again.lanes, run.lanes) << "seed " << seed;
  }
}

// With chunks = 1 everything passes in one order, so no op can make room for others by being slow.
TEST(Simulator, ASlowerOpNeverShortensAStep) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Dice dice(seed);
    const schedule::Shape shape = {dice.between(1, 4), 1, dice.between(1, 6)};
    const StepShape step = {.zero = dice.between(0, 3), .prefetch = dice.between(0, 2)};
    const Program program =
        lowered(seed % 2 == 0 ? "gpipe" : "1f1b", shape, step, shape.coords + dice.between(1, 4));
    const Cost cost = random_cost(seed);
    const double makespan = simulated(program, cost).makespan.value;
    EXPECT_EQ(
        simulated(program, [&](Coord c, const Op& op) { return cost(c, op) * 2.0; }).makespan.value,
        2 * makespan);
    for (int trial = 0; trial < 10; ++trial) {
      const int c = dice.between(0, shape.coords - 1);
      const auto& list = program.lists[static_cast<std::size_t>(c)];
      const Op slow =
          list[static_cast<std::size_t>(dice.between(0, static_cast<int>(list.size()) - 1))];
      const double extra = dice.between(1, 2000000);
      const double later = simulated(program, [&](Coord at, const Op& op) {
                             return cost(at, op) + Seconds{at.value == c && op == slow ? extra : 0};
                           }).makespan.value;
      EXPECT_GE(later, makespan) << "seed " << seed;
      EXPECT_LE(later, makespan + extra * static_cast<double>(std::ranges::count(list, slow)))
          << "seed " << seed;
    }
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
  EXPECT_EQ(refused(), "the program can not finish: coordinate 0 stands at op " +
                           std::to_string(whole.lists[0].size() - 3) + ": norm");
  // Each sends what the other waits for only after its own wait.
  const Op send_act = {.kind = OpKind::kSend, .reach = Reach::kPeer, .transfer = 0};
  const Op recv_act = {.kind = OpKind::kPostRecv, .reach = Reach::kPeer, .transfer = 0};
  const Op send_grad = {.kind = OpKind::kSend, .reach = Reach::kPeer, .transfer = 1};
  const Op recv_grad = {.kind = OpKind::kPostRecv, .reach = Reach::kPeer, .transfer = 1};
  const Op wait_first = {.kind = OpKind::kWait, .target = 0};
  program.lists = {{recv_grad, wait_first, send_act}, {recv_act, wait_first, send_grad}};
  const std::string message = refused();
  EXPECT_NE(message.find("coordinate 0 stands at op 1: wait for"), std::string::npos) << message;
  EXPECT_NE(message.find("coordinate 1 stands at op 1: wait for"), std::string::npos) << message;
}

}  // namespace
}  // namespace lockstep::sim
