#include "lockstep/exec/executor.h"

#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/base/check.h"
#include "lockstep/comm/local.h"
#include "lockstep/exec/synthetic.h"
#include "lockstep/exec/workspace.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/schedule/lower.h"
#include "lockstep/schedule/timeline.h"

namespace lockstep::exec {
namespace {

using mesh::Axis;
using schedule::OpKind;
using schedule::Program;
using schedule::StepShape;
using schedule::Value;
using schedule::ValueKind;

struct Case {
  int pp = 1, shards = 1, replicas = 1;
  int microbatches = 2;
  StepShape step;
  const char* schedule = "1f1b";
};

constexpr int kBlocks = 4;
constexpr std::int64_t kShard = 8;  // elements of a unit's shard

Program lowered(const Case& about) {
  StepShape step = about.step;
  step.replicas = about.replicas > 1;
  step.stage_begin = schedule::split_units(kBlocks + 2, about.pp);
  const auto order = schedule::find(about.schedule)->build({about.pp, 1, about.microbatches});
  EXPECT_TRUE(order.ok());
  auto program = schedule::lower(*order, step);
  EXPECT_TRUE(program.ok()) << (program.ok() ? "" : program.error().message);
  return *std::move(program);
}

mesh::Mesh mesh_of(const Case& about) {
  mesh::Degrees degrees;
  degrees.pp = about.pp;
  degrees.dp = std::int64_t{about.shards} * about.replicas;
  degrees.dp_shard = about.shards;
  return *mesh::Mesh::create(degrees);
}

SyntheticWorkspace::Count elements(const Case& about) {
  return [shards = about.shards](const Value& value) {
    const bool is_piece = value.kind == ValueKind::kParamShard ||
                          value.kind == ValueKind::kReduced || value.kind == ValueKind::kGradShard;
    return is_piece ? kShard : kShard * shards;
  };
}

struct Outcome {
  std::mutex mutex;
  std::vector<std::int64_t> tokens;
  std::vector<double> squares;
  std::vector<std::size_t> timed;
};

void run(const Case& about, const Program& program, int steps, std::uint64_t seed,
         Outcome& outcome) {
  const mesh::Mesh mesh = mesh_of(about);
  comm::run_local(
      mesh.world(),
      [&](comm::World& world) {
        const Deadline deadline = Deadline::after(Seconds{20});
        const Groups groups(world, "", mesh, about.step.tied, deadline);
        const Coord coord = mesh.coord(world.rank(), Axis::kPipeline);
        const int shard = mesh.coord(world.rank(), mesh::kDenseShard).value;
        SyntheticWorkspace workspace(program, coord, shard, elements(about),
                                     [](const schedule::Op&) { return Seconds{0}; });
        Executor executor(program, coord, groups, workspace, {Seconds{20}});
        StepSums sums;
        for (int step = 0; step < steps; ++step) sums = executor.run();
        const std::lock_guard lock(outcome.mutex);
        if (program.step.holds(coord, program.step.head()))
          outcome.tokens.push_back(workspace.tokens());
        outcome.squares.push_back(sums.squares.result());
        outcome.timed.push_back(executor.timeline().size() - program.list(coord).size());
      },
      {seed});
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int pp : {1, 2, 4})
    for (auto [shards, replicas] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)})
      for (int zero : {0, 1, 2, 3})
        for (auto period : {schedule::Period::kStep, schedule::Period::kMicrobatch}) {
          Case one{pp, shards, replicas, 3, {}, all.size() % 2 == 0 ? "1f1b" : "gpipe"};
          one.step.zero = zero;
          one.step.period = period;
          one.step.tied = all.size() % 3 == 0;
          if (all.size() % 4 == 0) one.step.recompute = {false, true, true, false, true, false};
          if (pp * shards * replicas <= 8) all.push_back(one);
        }
  return all;
}

TEST(Executor, RunsEveryProgramUnderLateDelivery) {
  int seed = 0;
  for (const Case& about : cases()) {
    SCOPED_TRACE(testing::Message()
                 << "pp " << about.pp << " shards " << about.shards << " replicas "
                 << about.replicas << " zero " << about.step.zero);
    const Program program = lowered(about);
    Outcome outcome;
    run(about, program, 2, static_cast<std::uint64_t>(++seed), outcome);
    for (std::int64_t tokens : outcome.tokens) EXPECT_EQ(tokens, about.shards * about.replicas);
    for (double squares : outcome.squares) EXPECT_EQ(squares, outcome.squares[0]);
    for (std::size_t missing : outcome.timed) EXPECT_EQ(missing, 0U);
  }
}

// The executor itself notices what a missing or early Wait leaves undone; no validator is asked.
TEST(Executor, NoticesAWaitThatIsMissing) {
  Case about{2, 2, 1, 2, {}, "1f1b"};
  about.step.zero = 3;
  const Program good = lowered(about);
  int dropped = 0;
  for (std::size_t at = 0; at < good.lists[0].size(); ++at) {
    if (good.lists[0][at].kind != OpKind::kWait) continue;
    Program program = good;
    auto& list = program.lists[0];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    for (schedule::Op& op : list)
      if (op.target > static_cast<int>(at)) --op.target;
    Outcome outcome;
    EXPECT_THROW(run(about, program, 1, 1, outcome), BrokenInvariant) << "op " << at;
    ++dropped;
  }
  EXPECT_GT(dropped, 10);
}

TEST(Groups, EveryRankLearnsWhoHoldsAnotherJob) {
  const Case about{2, 2, 1, 2, {}, "1f1b"};
  const mesh::Mesh mesh = mesh_of(about);
  for (int odd = 0; odd < mesh.world(); ++odd) {
    std::mutex mutex;
    std::vector<std::string> heard;
    comm::run_local(mesh.world(), [&](comm::World& world) {
      const Deadline deadline = Deadline::after(Seconds{20});
      const Groups groups(world, "", mesh, false, deadline);
      groups.agree({1, 2}, deadline);
      try {
        groups.agree({1, world.rank().value == odd ? 3U : 2U}, deadline);
      } catch (const WorldError& error) {
        const std::lock_guard lock(mutex);
        heard.emplace_back(error.what());
      }
    });
    ASSERT_EQ(heard.size(), static_cast<std::size_t>(mesh.world()));
    for (const std::string& words : heard) EXPECT_EQ(words, heard[0]);
    EXPECT_NE(heard[0].find("holds another program"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::exec
