#include "lockstep/exec/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/exec/workspace.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/timeline.h"
#include "tests/support/lateness.h"
#include "tests/support/synthetic.h"
#include "tests/train/hooked_workspace.h"

namespace lockstep::exec {
namespace {

using mesh::Axis;
using program::OpKind;
using program::Program;
using program::StepShape;
using program::Value;
using program::ValueKind;

struct Case {
  int pp = 1, shards = 1, replicas = 1;
  int microbatches = 2;
  StepShape step;
  std::string_view schedule = "1f1b";
  int tp = 1;
  int chunks = 1;
  int ep = 0, etp = 1;  // ep 0: no experts
  int expert_ranks() const { return tp * shards * replicas / (ep * etp); }
  int expert_replicas() const { return std::gcd(replicas, expert_ranks()); }
  int expert_shards() const { return ep == 0 ? 1 : expert_ranks() / expert_replicas(); }
};

constexpr int kBlocks = 4;
constexpr std::int64_t kShard = 8;  // elements of a unit's shard

Program lowered(const Case& about) {
  StepShape step = about.step;
  step.replicas = about.replicas > 1;
  step.tensor_parallel = about.tp > 1;
  if (about.tp > 1) step.partial = {false, true, true, false, true, true};
  const pipeline::Shape shape = {about.pp, about.chunks, about.microbatches};
  step.stage_begin =
      program::split_units(std::max(kBlocks + 2, shape.stages() + 1), shape.stages());
  if (about.ep > 0) step.experts = {false, true, false, true, true, false}, step.routed = 7;
  const auto order = pipeline::find(about.schedule)->build(shape);
  EXPECT_TRUE(order.ok());
  auto program = program::lower(*order, step);
  EXPECT_TRUE(program.ok()) << (program.ok() ? "" : program.error().message);
  return *std::move(program);
}

mesh::Mesh mesh_of(const Case& about) {
  mesh::Degrees degrees;
  degrees.tp = about.tp;
  degrees.pp = about.pp;
  degrees.dp = std::int64_t{about.shards} * about.replicas;
  degrees.dp_shard = about.shards;
  degrees.ep = std::max(1, about.ep);
  degrees.etp = about.etp;
  return *mesh::Mesh::create(degrees);
}

SyntheticWorkspace::Count elements(const Case& about) {
  return [about](const Value& value) {
    const bool is_piece = value.kind == ValueKind::kParamShard ||
                          value.kind == ValueKind::kReduced || value.kind == ValueKind::kGradShard;
    const bool is_state = value.kind >= ValueKind::kParam && value.kind <= ValueKind::kOptimizer;
    const bool of_experts = is_state && about.ep > 0 && value.a >= kBlocks + 2;
    return is_piece ? kShard : kShard * (of_experts ? about.expert_shards() : about.shards);
  };
}

struct Outcome {
  std::mutex mutex;
  std::vector<std::int64_t> tokens;
  std::vector<double> squares;
  std::vector<std::size_t> timed;
};

void run(const Case& about, const Program& program, int steps, const comm::LocalOptions& options,
         Outcome& outcome) {
  const mesh::Mesh mesh = mesh_of(about);
  comm::run_local(
      mesh.world(),
      [&](comm::World& world) {
        const Deadline deadline = Deadline::after(Seconds{20});
        const Groups groups(world, "", mesh, {.tied = about.step.tied}, deadline);
        const Coord coord = mesh.coord(world.rank(), Axis::kPipeline);
        const int shard = mesh.coord(world.rank(), mesh::kDenseShard).value;
        SyntheticWorkspace workspace(program, coord, shard, elements(about),
                                     [](const program::Op&) { return Seconds{0}; });
        Executor executor(program, coord, groups, workspace, {Seconds{20}});
        StepSums sums;
        for (int step = 0; step < steps; ++step) sums = executor.run();
        const std::lock_guard lock(outcome.mutex);
        if (program.step.holds(coord, program.step.head()))
          outcome.tokens.push_back(workspace.tokens());
        outcome.squares.push_back(sums.squares.result());
        outcome.timed.push_back(executor.timeline().size() - program.list(coord).size());
      },
      options);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int pp : {1, 2, 4})
    for (auto [shards, replicas] :
         {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)})
      for (int zero : {0, 1, 2, 3})
        for (auto period : {program::Period::kStep, program::Period::kMicrobatch}) {
          Case one{pp, shards, replicas, 3, {}, all.size() % 2 == 0 ? "1f1b" : "gpipe"};
          one.step.zero = zero;
          one.step.period = period;
          one.step.tied = all.size() % 3 == 0;
          if (all.size() % 4 == 0) one.step.recompute = {false, true, true, false, true, false};
          if (pp * shards * replicas <= 8) all.push_back(one);
          one.tp = 2;
          if (pp * shards * replicas <= 4) all.push_back(one);
        }
  return all;
}

// Every schedule with 1, 2 and 3 chunks, fewer microbatches than coordinates, as many, and a number
// that they do not divide; tied weights on one coordinate of a V and on two of a loop.
TEST(Executor, RunsEveryScheduleUnderLateDelivery) {
  std::uint64_t seed = 0;
  int schedules = 0;
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (const int pp : {2, 3, 4})
      for (const int chunks : {1, 2, 3})
        for (const int microbatches : {2, 4, 2 * pp + 1}) {
          if (!row.build({pp, chunks, microbatches}).ok()) continue;
          ++seed;
          const int shards = pp == 2 && seed % 2 == 0 ? 2 : 1;
          Case about{pp, shards, 1, microbatches, {}, row.name, 1, chunks};
          about.step.zero = static_cast<int>(seed % 4);
          about.step.period = seed % 3 == 0 ? program::Period::kMicrobatch : program::Period::kStep;
          about.step.tied = seed % 5 != 0;
          SCOPED_TRACE(testing::Message() << row.name << " pp " << pp << " virtual stages "
                                          << chunks << " m " << microbatches << " seed " << seed);
          Outcome outcome;
          run(about, lowered(about), 2, {seed, comm::seeded_lateness(seed, Seconds{0.0005})},
              outcome);
          EXPECT_EQ(outcome.squares.size(), static_cast<std::size_t>(pp * shards));
          for (double squares : outcome.squares) EXPECT_EQ(squares, outcome.squares[0]);
          ++schedules;
        }
  EXPECT_GT(schedules, 100);
}

TEST(Executor, RunsEveryProgramUnderLateDelivery) {
  int seed = 0;
  for (const Case& about : cases()) {
    SCOPED_TRACE(testing::Message()
                 << "pp " << about.pp << " shards " << about.shards << " replicas "
                 << about.replicas << " zero " << about.step.zero << " tp " << about.tp);
    const Program program = lowered(about);
    Outcome outcome;
    run(about, program, 2, {static_cast<std::uint64_t>(++seed)}, outcome);
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
    for (program::Op& op : list)
      if (op.target > static_cast<int>(at)) --op.target;
    Outcome outcome;
    EXPECT_THROW(run(about, program, 1, {1}, outcome), BrokenInvariant) << "op " << at;
    ++dropped;
  }
  EXPECT_GT(dropped, 10);
}

// Gradients of whole numbers that tell unit, element, microbatch and rank apart. Elements from kCut
// on are replicated: the first shard of two holds none of them.
class WholeNumbers {
 public:
  static constexpr std::int64_t kCut = 10;

  WholeNumbers(const Case& about, const StepShape& step, const mesh::Mesh& mesh, Rank rank)
      : about_(about),
        step_(step),
        shard_(mesh.coord(rank, mesh::kDenseShard).value),
        expert_shard_(mesh.coord(rank, Axis::kExpertDataShard).value),
        data_(mesh.coord(rank, mesh::kData).value),
        tensor_(mesh.coord(rank, Axis::kTensor).value) {}

  train::Hooks hooks() {
    train::Hooks hooks;
    hooks.compute = [this](const program::Op& op, const program::Effects& fx, Workspace& inner) {
      if (op.kind == OpKind::kUpdate) check(op.unit, inner);
      std::map<Value, std::vector<float>> sums;  // and what was there
      for (const Value& value : fx.mutates)
        if (value.kind == ValueKind::kMainGrad) {
          const std::span<float> now = floats(inner.buffer(value));
          sums[value].assign(now.begin(), now.end());
        }
      inner.compute(op, fx);
      for (const Value& value : fx.defines)
        if (value.kind == ValueKind::kMainGrad)
          sums[value].resize(static_cast<std::size_t>(inner.buffer(value).count));
      for (const auto& [sum, before] : sums) {
        const std::span<float> now = floats(inner.buffer(sum));
        for (std::size_t e = 0; e < now.size(); ++e)
          now[e] = before[e] +
                   summand(sum.a, static_cast<std::int64_t>(e), op.microbatch, data_, tensor_);
      }
    };
    hooks.replicated_part = [this](int unit, Workspace& inner) {
      const std::int64_t first = first_element(unit);
      const Buffer own = inner.buffer(final_grad(step_, unit));
      const std::int64_t begin = std::clamp(kCut - first, std::int64_t{0}, own.count);
      return own.slice(begin, own.count - begin);
    };
    return hooks;
  }

  int checked = 0;

 private:
  static std::span<float> floats(const Buffer& buffer) {
    return {static_cast<float*>(buffer.data), static_cast<std::size_t>(buffer.count)};
  }
  std::int64_t first_element(int segment) const {
    return step_.zero == 0 ? 0 : (step_.is_experts(segment) ? expert_shard_ : shard_) * kShard;
  }
  // Whether they hold the same experts: etp counts fastest, then ep.
  bool shares_experts(int data, int tensor) const {
    const int held = about_.ep * about_.etp;
    return (tensor + about_.tp * data) % held == (tensor_ + about_.tp * data_) % held;
  }

  static float summand(int unit, std::int64_t element, int mb, int data, int tensor) {
    return static_cast<float>((1 + element + 16 * unit) * (1 + mb) * (1 + data) * (1 + 2 * tensor));
  }

  void check(int segment, Workspace& inner) {
    const std::span<float> grad = floats(inner.buffer(final_grad(step_, segment)));
    for (std::size_t i = 0; i < grad.size(); ++i) {
      const std::int64_t element = first_element(segment) + static_cast<std::int64_t>(i);
      const bool is_summed = element >= kCut && step_.is_partial(segment);
      float expected = 0;
      for (int mb = 0; mb < about_.microbatches; ++mb)
        for (int data = 0; data < about_.shards * about_.replicas; ++data)
          for (int tensor = 0; tensor < about_.tp; ++tensor)
            if (step_.is_experts(segment) ? shares_experts(data, tensor)
                                          : is_summed || tensor == tensor_)
              expected += summand(segment, element, mb, data, tensor);
      EXPECT_EQ(grad[i], expected) << "segment " << segment << " element " << element;
      ++checked;
    }
  }

  const Case& about_;
  const StepShape& step_;
  const int shard_, expert_shard_, data_, tensor_;
};

// Runs one step; returns what every rank takes for the sum of squares.
std::vector<double> run_whole_numbers(const Case& about) {
  const Program program = lowered(about);
  const StepShape& step = program.step;
  const mesh::Mesh mesh = mesh_of(about);
  std::mutex mutex;
  std::vector<double> squares;
  const auto rank_main = [&](comm::World& world) {
    const Groups groups(world, "", mesh, {.experts = about.ep > 0}, Deadline::after(Seconds{20}));
    const Coord coord = mesh.coord(world.rank(), Axis::kPipeline);
    const int shard = mesh.coord(world.rank(), mesh::kDenseShard).value;
    SyntheticWorkspace inner(
        program, coord, shard, elements(about), [](const program::Op&) { return Seconds{0}; },
        mesh.coord(world.rank(), Axis::kExpertDataShard).value);
    WholeNumbers numbers(about, step, mesh, world.rank());
    train::HookedWorkspace workspace(inner, numbers.hooks());
    Executor executor(program, coord, groups, workspace, {Seconds{20}});
    const StepSums sums = executor.run();
    std::int64_t elements = 0;
    step.for_each_segment(coord, [&](int segment) {
      const int shards = step.is_experts(segment) ? about.expert_shards() : about.shards;
      elements += kShard * (step.zero == 0 ? shards : 1);
    });
    EXPECT_EQ(numbers.checked, elements);
    int calls = 1;  // of Norm
    const bool has_replicated = kShard * about.shards > WholeNumbers::kCut;
    for (int unit = 0; unit < step.units() && has_replicated && (step.zero == 0 || shard > 0);
         ++unit)
      calls += step.holds(coord, unit) && step.is_partial(unit);
    const comm::Ledger::Key key{"tp", comm::OpKind::kAllReduce};
    EXPECT_EQ(world.ledger().entries()[key].calls, calls);
    EXPECT_EQ(sums.expert_tokens, std::vector<std::int64_t>(step.num_routed(), mesh.world()));
    const double told = about.ep > 0 ? mesh.world() : 0;
    EXPECT_EQ(sums.aux_loss.result(), 0.5 * told);
    EXPECT_EQ(sums.z_loss.result(), 0.25 * told);
    const std::lock_guard lock(mutex);
    squares.push_back(sums.squares.result());
  };
  comm::run_local(mesh.world(), rank_main, {7});
  return squares;
}

// Every element of every unit over the data group, those of replicated parameters of partial units
// over the tensor group too, each once; and the norm over everyone.
TEST(Executor, SumsReplicatedParametersOverTheTensorGroup) {
  for (const int zero : {0, 1, 2, 3})
    for (const auto period : {program::Period::kStep, program::Period::kMicrobatch})
      for (const int replicas : {1, 2}) {
        SCOPED_TRACE(testing::Message() << "zero " << zero << " replicas " << replicas);
        Case about{replicas == 1 ? 2 : 1, 2, replicas, 3, {}, "1f1b", 2};
        about.step.zero = zero;
        about.step.period = period;
        const std::vector<double> squares = run_whole_numbers(about);
        for (const double one : squares) EXPECT_EQ(one, squares[0]);
      }
}

// Those of experts over the ranks that hold the same, whichever axes of the dense view they span.
TEST(Executor, SumsExpertsOverTheRanksThatHoldThem) {
  for (const int zero : {0, 1, 2, 3})
    for (const auto& [ep, etp] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}, {4, 1}, {8, 1}})
      for (const int replicas : {1, 2, 4}) {
        SCOPED_TRACE(testing::Message()
                     << "zero " << zero << " ep " << ep << " etp " << etp << " of " << replicas);
        Case about{1, 4 / replicas, replicas, 3, {}, "1f1b", 2};
        about.ep = ep;
        about.etp = etp;
        about.step.zero = zero;
        const std::vector<double> squares = run_whole_numbers(about);
        for (const double one : squares) EXPECT_EQ(one, squares[0]);
      }
}

TEST(Groups, EveryRankLearnsWhoHoldsAnotherJob) {
  const Case about{2, 2, 1, 2, {}, "1f1b", 2};
  const mesh::Mesh mesh = mesh_of(about);
  for (int odd = 0; odd < mesh.world(); ++odd) {
    std::mutex mutex;
    std::vector<std::string> heard;
    comm::run_local(mesh.world(), [&](comm::World& world) {
      const Deadline deadline = Deadline::after(Seconds{20});
      const Groups groups(world, "", mesh, {}, deadline);
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
