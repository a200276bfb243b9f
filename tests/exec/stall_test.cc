// Stalls planted at every kind of op and on every lane of worlds of threads: the report names the
// rank and the op.
#include "lockstep/exec/stall.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "lockstep/base/check.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/exec/executor.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/op_table.h"
#include "lockstep/program/text.h"
#include "tests/support/starvation.h"
#include "tests/support/synthetic.h"

namespace lockstep::exec {
namespace {

using mesh::Axis;
using program::Op;
using program::OpKind;
using program::Program;
using program::Value;
using program::ValueKind;

// All others must have come as far as they can before the deadline, so it is several times what
// that takes; where a machine had no time for that, the same stall is tried with the next.
// Sanitizers make that twenty times as long, and a part of the stalls is enough for them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr Seconds kDeadlines[] = {{3}, {30}};
constexpr std::size_t kEvery = 6;
#else
constexpr Seconds kDeadlines[] = {{0.5}, {3}, {15}};
constexpr std::size_t kEvery = 1;
#endif
constexpr std::int64_t kPiece = 4;
constexpr int kWorkers = 64;  // worlds at a time; nearly all of their time is waiting

struct Job {
  std::string name;
  Program program;
  mesh::Mesh mesh;
  bool tied;
};

Job job(const char* schedule, pipeline::Shape shape, int shards, int replicas, int zero, bool tied,
        int tp = 1) {
  program::StepShape step;
  step.zero = zero;
  step.tied = tied;
  step.replicas = replicas > 1;
  step.period = zero < 2 ? program::Period::kStep : program::Period::kMicrobatch;
  const int units = shape.stages() + 2;
  step.stage_begin = program::split_units(units, shape.stages());
  step.recompute.assign(static_cast<std::size_t>(units), false);
  step.recompute[1] = true;
  step.tensor_parallel = tp > 1;
  if (tp > 1) step.partial.assign(static_cast<std::size_t>(units), true);
  const auto timetable = pipeline::find(schedule)->build(shape);
  LS_CHECK(timetable.ok(), "no such timetable");
  const mesh::Degrees degrees = {
      .tp = tp, .pp = shape.coords, .dp = std::int64_t{shards} * replicas, .dp_shard = shards};
  return {join_parts(schedule, " zero", zero), *program::lower(*timetable, step),
          *mesh::Mesh::create(degrees), tied};
}

// Together every kind of op, lane, group and placement.
std::vector<Job> jobs() {
  return {job("1f1b", {3, 1, 4}, 1, 1, 0, true),
          job("zb-h1", {2, 1, 3}, 2, 1, 1, true),
          job("zbv", {2, 2, 3}, 2, 1, 3, true),
          job("interleaved-zb", {2, 2, 4}, 1, 2, 2, false),
          job("interleaved", {2, 2, 2}, 2, 2, 3, true),
          job("1f1b", {2, 1, 2}, 1, 1, 1, false, 2)};
}

// Where a rank stops for good, or which operation is never delivered.
struct Plant {
  std::optional<Rank> rank = {};
  comm::Position at = {};
  comm::Lateness lateness = {};
};

// Runs two steps until everyone who can has failed; then what each of them had to report.
class Stalled {
  struct Released {};

 public:
  Stalled(const Job& job, const Plant& plant, Seconds deadline = kDeadlines[0])
      : job_(job), plant_(plant), deadline_(deadline) {
    try {
      comm::run_local(job.mesh.world(), [this](comm::World& world) { run(world); },
                      {1, plant.lateness});
    } catch (const comm::CommError&) {  // which is the point
    }
  }
  const std::map<Rank, StallReport>& reports() const { return reports_; }

 private:
  void run(comm::World& world) {
    try {
      train(world);
    } catch (const Released&) {  // so that it does not go on among the failed
    } catch (const comm::CommError&) {
      StallReport report = explain_stall(job_.program, job_.mesh, world.last_seen());
      const std::lock_guard lock(mutex_);
      reports_.emplace(world.rank(), std::move(report));
      end();
      throw;
    }
    const std::lock_guard lock(mutex_);
    end();
  }

  void end() {
    ++ended_;
    all_ended_.notify_all();
  }

  void train(comm::World& world) {
    const Deadline deadline = Deadline::after(Seconds{60});
    const Groups groups(world, "", job_.mesh, {.tied = job_.tied}, deadline);
    const Coord coord = job_.mesh.coord(world.rank(), Axis::kPipeline);
    const int shard = job_.mesh.coord(world.rank(), mesh::kDenseShard).value;
    const auto elements = [&](const Value& value) {
      const bool is_piece = value.kind == ValueKind::kParamShard ||
                            value.kind == ValueKind::kReduced ||
                            value.kind == ValueKind::kGradShard;
      return is_piece ? kPiece : kPiece * job_.mesh.degree(mesh::kDenseShard);
    };
    SyntheticWorkspace workspace(job_.program, coord, shard, elements,
                                 [](const Op&) { return Seconds{0}; });
    std::int32_t step = 0;
    Executor executor(job_.program, coord, groups, workspace,
                      {deadline_, [&](int op, bool waits) {
                         world.position().set({step, op, waits});
                         stop_at(world.rank(), {step, op, waits});
                       }});
    for (; step < 2; ++step) executor.run();
  }

  void stop_at(Rank rank, comm::Position at) {
    if (rank != plant_.rank || at != plant_.at) return;
    std::unique_lock lock(mutex_);
    all_ended_.wait(lock, [&] { return ended_ == job_.mesh.world() - 1; });
    throw Released();
  }

  const Job& job_;
  const Plant& plant_;
  Seconds deadline_;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  int ended_ = 0;
  std::map<Rank, StallReport> reports_;
};

template <class Item, class Use>
void for_all(const std::vector<Item>& items, Use use) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i)
    workers.emplace_back([&] {
      for (std::size_t at = next++; at * kEvery < items.size(); at = next++)
        use(items[at * kEvery]);
    });
  for (std::thread& worker : workers) worker.join();
}

// Of every kind of op on every coordinate the first and the last, on different ranks; of waits
// those of every kind of op, before the wait begins or after.
std::vector<Plant> plants(const Job& job) {
  std::map<std::tuple<std::int32_t, OpKind, bool>, std::pair<std::int32_t, std::int32_t>> chosen;
  for (std::int32_t c = 0; c < job.program.step.shape.coords; ++c) {
    const auto& list = job.program.list({c});
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(list.size()); ++i) {
      const Op& op = list[static_cast<std::size_t>(i)];
      const bool is_wait = op.kind == OpKind::kWait;
      const OpKind kind = is_wait ? list[static_cast<std::size_t>(op.target)].kind : op.kind;
      chosen.try_emplace({c, kind, is_wait}, i, i).first->second.second = i;
    }
  }
  std::vector<Plant> all;
  for (const auto& [key, ops] : chosen)
    for (const std::int32_t op : std::set{ops.first, ops.second}) {
      std::vector<Rank> ranks;
      for (std::int32_t r = 0; r < job.mesh.world(); ++r)
        if (job.mesh.coord(Rank{r}, Axis::kPipeline).value == std::get<0>(key))
          ranks.push_back(Rank{r});
      const auto number = static_cast<std::int32_t>(all.size());
      all.push_back({ranks[static_cast<std::size_t>(number) % ranks.size()],
                     {number % 2, op, std::get<bool>(key) && number % 3 == 0}});
    }
  return all;
}

// What is wrong with what the others report of a rank that stopped; nothing, if they have it right.
std::string wrong_of_stop(const Job& job, const Plant& plant, const Stalled& stalled) {
  const Rank rank = *plant.rank;
  const Coord coord = job.mesh.coord(rank, Axis::kPipeline);
  const Op& op = job.program.list(coord)[static_cast<std::size_t>(plant.at.op)];
  const std::string what = op_text(job.program, coord, op);
  const std::string where =
      join_parts(job.name, ": rank ", rank.value, " stops at ", what, " and rank ");
  // After the last op that others need, nobody is held up in the last step.
  if (stalled.reports().empty() && !(plant.at.step == 1 && op.kind == OpKind::kUpdate))
    return where + "0 is not held up";
  for (const auto& [reporter, report] : stalled.reports()) {
    const RankStatus& status = report.ranks[static_cast<std::size_t>(rank.value)];
    const std::string chain = report.chain(reporter);
    const bool is_right = report.culprits == std::vector{rank} && status.op == plant.at.op &&
                          (plant.at.waits || status.what == "is at " + what) &&
                          chain.starts_with(join_parts("rank ", reporter.value, " waits ")) &&
                          chain.find(join_parts("; rank ", rank.value, " ")) != chain.npos;
    if (!is_right)
      return join_parts(where, reporter.value, " tells\n", report.table(), "\n", chain);
  }
  return "";
}

// The same of an operation that is held back for ever. Adds what is told of it to `told`.
std::string wrong_of_hold(const Job& job, const Stalled& stalled, std::set<std::string>& told) {
  if (stalled.reports().empty()) return job.name + ": nobody is held up";
  for (const auto& [reporter, report] : stalled.reports()) {
    if (report.culprits.empty())
      return join_parts(job.name, ": nobody is at fault\n", report.table());
    for (const Rank rank : report.culprits) {
      const std::string& what = report.ranks[static_cast<std::size_t>(rank.value)].what;
      if (what.find("which does not end") == what.npos && what.find("is under way") == what.npos)
        return join_parts(job.name, "\n", report.table());
      told.insert(what);
    }
  }
  return "";
}

std::string wrong_at_every_deadline(const std::function<std::string(Seconds)>& wrong) {
  return wrong_unless_starved(static_cast<int>(std::size(kDeadlines)),
                              Seconds{kDeadlines[0].value / 5},
                              [&](int i) { return wrong(kDeadlines[i]); });
}

TEST(StallSlow, NamesTheRankAndTheOpWhereverItStops) {
  std::atomic<int> planted = 0;
  std::set<OpKind> kinds;
  for (const Job& job : jobs()) {
    const std::vector<Plant> all = plants(job);
    for_all(all, [&](const Plant& plant) {
      EXPECT_EQ(wrong_at_every_deadline([&](Seconds deadline) {
                  return wrong_of_stop(job, plant, Stalled(job, plant, deadline));
                }),
                "");
      ++planted;
    });
    for (std::size_t i = 0; i < all.size(); i += kEvery) {
      const Coord coord = job.mesh.coord(*all[i].rank, Axis::kPipeline);
      kinds.insert(job.program.list(coord)[static_cast<std::size_t>(all[i].at.op)].kind);
    }
  }
  if (kEvery == 1) {
    EXPECT_EQ(kinds.size(), static_cast<std::size_t>(program::kNumOpKinds));
  }
  std::cout << planted << " ranks stopped at " << kinds.size() << " kinds of op\n";
}

// One operation of every kind and group is held back for ever.
TEST(StallSlow, NamesTheOperationThatIsNotDelivered) {
  std::atomic<int> planted = 0;
  std::set<std::string> told;
  for (const Job& job : jobs()) {
    std::mutex mutex;
    std::map<std::string, comm::Delivery> seen;  // by what an operation is, not by which of them
    const Plant look{.lateness = [&](const comm::Delivery& d) {
      const std::lock_guard lock(mutex);
      const std::string group(d.group.substr(0, d.group.find(':')));
      if (group.find("self") == group.npos)
        seen.try_emplace(join_parts(group, " ", static_cast<int>(d.kind), " ", d.from, " ", d.to),
                         comm::Delivery{{}, d.kind, d.from, d.to, d.tag, d.number});
      return Seconds{0};
    }};
    EXPECT_TRUE(Stalled(job, look, Seconds{30}).reports().empty()) << "without a plant";
    struct Held {
      Plant plant;
      std::shared_ptr<std::atomic<bool>> is_held;
    };
    std::vector<Held> all;
    for (const auto& [what, chosen] : seen) {
      const std::string group = what.substr(0, what.find(' '));
      auto is_held = std::make_shared<std::atomic<bool>>(false);
      const auto lateness = [group, chosen = chosen, is_held](const comm::Delivery& d) {
        const bool same = d.group.starts_with(group + ":") && d.kind == chosen.kind &&
                          d.from == chosen.from && d.to == chosen.to && d.tag == chosen.tag &&
                          d.number == chosen.number && !is_held->exchange(true);
        return Seconds{same ? std::numeric_limits<double>::infinity() : 0.0};
      };
      all.push_back({{.lateness = lateness}, is_held});
    }
    for_all(all, [&](const Held& held) {
      EXPECT_EQ(wrong_at_every_deadline([&](Seconds deadline) {
                  held.is_held->store(false);
                  const Stalled stalled(job, held.plant, deadline);
                  const std::lock_guard lock(mutex);
                  return wrong_of_hold(job, stalled, told);
                }),
                "");
      ++planted;
    });
  }
  std::cout << planted << " operations held back, told in " << told.size() << " ways\n";
}

TEST(Stall, IsToldInPlainWords) {
  const Job about = job("1f1b", {4, 1, 4}, 1, 1, 0, false);
  // Rank 3 is in the head's B of microbatch 0, and everyone waits for it.
  const auto& last = about.program.list({3});
  const auto stop = std::ranges::find_if(
      last, [](const Op& op) { return op.kind == OpKind::kBackward && op.microbatch == 0; });
  const Plant plant{.rank = Rank{3}, .at = {0, static_cast<std::int32_t>(stop - last.begin())}};
  const Stalled stalled(about, plant, Seconds{2});
  ASSERT_EQ(stalled.reports().size(), 3u);
  EXPECT_EQ(
      stalled.reports().at(Rank{1}).chain(Rank{1}),
      "rank 1 waits for the gradient of unit 2, microbatch 0, from rank 2, which has not "
      "started B of unit 3, microbatch 0; rank 2 waits for the gradient of unit 3, microbatch "
      "0, from rank 3, which has not started B of unit 4, microbatch 0; rank 3 is at B of "
      "unit 5, microbatch 0");
  EXPECT_EQ(stalled.reports().at(Rank{2}).describe_from(Rank{2}),
            "rank 2 waits for the gradient of unit 3, microbatch 0, from rank 3, which has not "
            "started B of unit 4, microbatch 0\n"
            "rank 3 is at B of unit 5, microbatch 0\n"
            "rank 0 waits for the gradient of unit 1, microbatch 0, from rank 1, which has not "
            "started B of unit 2, microbatch 0\n"
            "rank 1 waits for the gradient of unit 2, microbatch 0, from rank 2, which has not "
            "started B of unit 3, microbatch 0");
}

TEST(Stall, SilentRanksAndThoseBetweenStepsAreTold) {
  const Job about = job("1f1b", {2, 1, 2}, 1, 1, 0, false);
  const auto size = static_cast<std::int32_t>(about.program.list({0}).size());
  const auto& list = about.program.list({1});
  const auto norm =
      static_cast<std::int32_t>(std::ranges::find(list, OpKind::kNorm, &Op::kind) - list.begin());
  const std::vector<comm::LastSeen> between = {{comm::Position{0, size}},
                                               {comm::Position{1, norm, true}}};
  StallReport report = explain_stall(about.program, about.mesh, between);
  EXPECT_EQ(report.culprits, std::vector{Rank{0}});
  EXPECT_EQ(
      report.chain(Rank{1}),
      "rank 1 waits for rank 0 in norm, which it has not come to; rank 0 has ended step 0 and "
      "not begun the next");
  const std::vector<comm::LastSeen> silent = {{comm::Position{1, size - 1}, true},
                                              {comm::Position{1, norm, true}}};
  report = explain_stall(about.program, about.mesh, silent);
  EXPECT_EQ(report.culprits, std::vector{Rank{0}});
  EXPECT_EQ(report.table(),
            "rank 0 shows no sign of life, last at update of unit 1\n"
            "rank 1 waits for rank 0 in norm, which it had come to");
  report = explain_stall(about.program, about.mesh, std::vector<comm::LastSeen>(2));
  EXPECT_TRUE(report.culprits.empty());
  EXPECT_EQ(report.table(), "each of ranks 0 to 1 has not begun");
}

TEST(Stall, APositionOutsideOfTheProgramCountsAsNoneAtAll) {
  std::mt19937_64 random(1);
  const auto forged = [&](std::int32_t size) {
    const std::int32_t edges[] = {-1,       std::numeric_limits<std::int32_t>::min(),
                                  size + 1, std::numeric_limits<std::int32_t>::max(),
                                  -7,       size,
                                  0,        size - 1};
    return edges[random() % std::size(edges)];
  };
  for (const Job& job : jobs())
    for (int trial = 0; trial < 1000; ++trial) {
      std::vector<comm::LastSeen> seen, cleaned;
      for (std::int32_t r = 0; r < job.mesh.world(); ++r) {
        const Coord coord = job.mesh.coord(Rank{r}, Axis::kPipeline);
        const auto size = static_cast<std::int32_t>(job.program.list(coord).size());
        const bool forges = random() % 2 == 0;
        const comm::Position at = {
            forges ? forged(2) : static_cast<std::int32_t>(random() % 2),
            forges ? forged(size)
                   : static_cast<std::int32_t>(random() % static_cast<unsigned>(size + 1)),
            random() % 2 == 0};
        const bool is_silent = random() % 8 == 0;
        seen.push_back({at, is_silent});
        cleaned.push_back(seen.back());
        if (at.step < 0 || at.op < 0 || at.op > size) cleaned.back().position.reset();
      }
      const StallReport report = explain_stall(job.program, job.mesh, seen);
      ASSERT_EQ(report.table(), explain_stall(job.program, job.mesh, cleaned).table());
      for (std::int32_t r = 0; r < job.mesh.world(); ++r)
        ASSERT_FALSE(report.chain(Rank{r}).empty() || report.describe_from(Rank{r}).empty());
    }
}

// Ops of an evaluation are none of a step's, though their numbers are alike.
TEST(Stall, StepsAndEvaluationsAreToldApart) {
  const Job about = job("1f1b", {2, 1, 2}, 1, 1, 0, false);
  const Program evaluation = *program::lower_forward_only(about.program.step);
  const auto& list = evaluation.list({1});
  const auto wait = static_cast<std::int32_t>(
      std::ranges::find_if(list,
                           [&](const Op& op) {
                             return op.kind == OpKind::kWait &&
                                    list[static_cast<std::size_t>(op.target)].kind ==
                                        OpKind::kPostRecv;
                           }) -
      list.begin());
  ASSERT_LT(wait, std::ssize(list));
  const comm::Position waits = {7, wait, true, true};
  const auto last = static_cast<std::int32_t>(about.program.list({0}).size()) - 1;
  StallReport report =
      explain_stall(evaluation, about.mesh,
                    std::vector<comm::LastSeen>{{comm::Position{7, last, true}}, {waits}});
  EXPECT_EQ(report.chain(Rank{1}),
            "rank 1 waits for the output of unit 1, microbatch 0, from rank 0, which has not "
            "started F of unit 1, microbatch 0; rank 0 is in step 7");
  EXPECT_EQ(report.culprits, std::vector{Rank{0}});
  report = explain_stall(about.program, about.mesh,
                         std::vector<comm::LastSeen>{{comm::Position{8, 0, true}}, {waits}});
  EXPECT_EQ(report.ranks[1].what, "is in the evaluation after step 7");
  EXPECT_EQ(report.ranks[1].op, -1);
  const auto end = static_cast<std::int32_t>(evaluation.list({0}).size());
  report =
      explain_stall(evaluation, about.mesh,
                    std::vector<comm::LastSeen>{{comm::Position{7, end, false, true}}, {waits}});
  EXPECT_EQ(report.ranks[0].what, "has ended the evaluation after step 7 and not begun the next");
}

TEST(Stall, APositionIsReadAsItWasWritten) {
  comm::PositionCell cell;
  EXPECT_FALSE(cell.get());
  for (const comm::Position at :
       {comm::Position{0, 0}, comm::Position{7, 5, true}, comm::Position{7, 5, false, true},
        comm::Position{7, 5, true, false, 11}, comm::Position{67108863, 16777215, true, true, 9}}) {
    cell.set(at);
    EXPECT_EQ(cell.get(), at);
  }
  cell.set({7, 5, true, false, 1 << 20});
  EXPECT_EQ(cell.get(), (comm::Position{7, 5, true, false, (1 << 12) - 1}));
  EXPECT_LT((comm::Position{7, 5, true, false, 3}), (comm::Position{7, 5, false, false, 4}));
  EXPECT_LT((comm::Position{7, 900, true}), (comm::Position{7, 0, false, true}));
  EXPECT_LT((comm::Position{7, 900, true, true}), (comm::Position{8, 0}));
}

}  // namespace
}  // namespace lockstep::exec
