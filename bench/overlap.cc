// Whether communication hides behind computation as the program's lanes say. Two gloo processes run
// a ZeRO-3 step whose computation is synthetic and of fixed length. The simulator, told how long
// each computation took and how long each gather and reduction ran on its lane, says how long the
// list should have stood still in Waits; the run says how long it did. A lone gather is timed too:
// what it takes longer beside others is contention, which is not the lanes' matter. Prints medians
// over steps, for computation that is longer and shorter than the gathers.
//   bench_overlap [MiB of a unit's parameters = 32] [steps = 9]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/median.h"
#include "lockstep/base/check.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/exec/executor.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/sim/simulator.h"
#include "tests/support/synthetic.h"

namespace lockstep {
namespace {

using program::OpKind;

constexpr int kRanks = 2;
constexpr int kBlocks = 6;

program::Program zero3_program() {
  program::StepShape step;
  step.stage_begin = {0, kBlocks + 2};
  step.zero = 3;
  step.period = program::Period::kMicrobatch;
  return *program::lower(*pipeline::find("1f1b")->build({1, 1, 1}), step);
}

bool is_compute(OpKind kind) { return kind == OpKind::kForward || kind == OpKind::kBackward; }

struct Times {
  double step = 0, gather_wait = 0, reduce_wait = 0;
};

struct Outcome {
  std::vector<double> step, step_error, gather_wait, gather_error, reduce_wait, reduce_error,
      gather;

  void add(const Times& measured, const Times& predicted) {
    const auto percent = [](double a, double b) { return 100 * (a / b - 1); };
    step.push_back(measured.step);
    step_error.push_back(percent(measured.step, predicted.step));
    gather_wait.push_back(measured.gather_wait);
    gather_error.push_back(percent(measured.gather_wait, predicted.gather_wait));
    reduce_wait.push_back(measured.reduce_wait);
    reduce_error.push_back(percent(measured.reduce_wait, predicted.reduce_wait));
  }
};

class Bench {
 public:
  Bench(comm::World& world, std::int64_t mib)
      : world_(world),
        program_(zero3_program()),
        mesh_(*mesh::Mesh::create({.dp = kRanks})),
        groups_(world, "", mesh_, {}, Deadline::after(Seconds{60})),
        lone_(*groups_.of(program::CommGroup::kShard)[0]),
        elements_(mib * 1024 * 1024 / 4) {}

  // Of gathers that have nothing beside them, one after another as in the step.
  double lone_gather(int repeats) {
    std::vector<float> whole(static_cast<std::size_t>(elements_)), part(whole.size() / kRanks);
    const Buffer out = {whole.data(), elements_, DType::kF32, {}};
    const Buffer in = {part.data(), elements_ / kRanks, DType::kF32, {}};
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      const RealClock clock;
      lone_.all_gather(in, out, Deadline::after(Seconds{60})).wait();
      times.push_back(clock.now().since_start.value);
    }
    return median(times);
  }

  Outcome run(double compute, int steps) {
    exec::SyntheticWorkspace workspace(
        program_, {0}, world_.rank().value,
        [this](const program::Value& value) {
          using program::ValueKind;
          if (value.kind == ValueKind::kParam || value.kind == ValueKind::kMainGrad)
            return elements_;
          if (value.kind == ValueKind::kParamShard || value.kind == ValueKind::kReduced)
            return elements_ / kRanks;
          return std::int64_t{16};
        },
        [compute](const program::Op& op) { return Seconds{is_compute(op.kind) ? compute : 0.0}; });
    exec::Executor executor(program_, {0}, groups_, workspace, {Seconds{60}});
    executor.run();  // touches all memory
    Outcome outcome;
    for (int i = 0; i < steps; ++i) {
      executor.run();
      const program::Timeline& timeline = executor.timeline();
      outcome.add({timeline.back().end.value, waited(timeline, OpKind::kGather),
                   waited(timeline, OpKind::kReduce)},
                  predict(timeline, executor.lanes()));
      for (const program::TimedOp& timed : executor.lanes())
        if (program_.lists[0][static_cast<std::size_t>(timed.op)].kind == OpKind::kGather)
          outcome.gather.push_back((timed.end - timed.start).value);
    }
    return outcome;
  }

 private:
  Times predict(const program::Timeline& timeline, const program::Timeline& lanes) const {
    std::vector<Seconds> lengths(program_.lists[0].size());
    for (const program::Timeline* part : {&timeline, &lanes})
      for (const program::TimedOp& timed : *part)
        lengths[static_cast<std::size_t>(timed.op)] = timed.end - timed.start;
    const auto simulated = sim::simulate(program_, [&](Coord, const program::Op& op) {
      return lengths[static_cast<std::size_t>(&op - program_.lists[0].data())];
    });
    LS_CHECK(simulated.ok());
    return {simulated->makespan.value, waited(simulated->coords[0], OpKind::kGather),
            waited(simulated->coords[0], OpKind::kReduce)};
  }

  double waited(const program::Timeline& timeline, OpKind target) const {
    const auto& list = program_.lists[0];
    double sum = 0;
    for (const program::TimedOp& timed : timeline) {
      const program::Op& op = list[static_cast<std::size_t>(timed.op)];
      if (op.kind == OpKind::kWait && list[static_cast<std::size_t>(op.target)].kind == target)
        sum += (timed.end - timed.start).value;
    }
    return sum;
  }

  comm::World& world_;
  program::Program program_;
  mesh::Mesh mesh_;
  exec::Groups groups_;
  comm::Communicator& lone_;  // the shard group
  std::int64_t elements_;
};

void run_rank(std::int64_t mib, int steps) {
  const auto world = comm::join(DeviceKind::kCpu, *comm::rendezvous_from(comm::process_environment),
                                Deadline::after(Seconds{60}));
  Bench bench(*world, mib);
  if (world->rank() == Rank{0})
    std::printf(
        "computation  lone gather   in the step |     step  lanes say | exposed gathers  "
        "lanes say | exposed reductions  lanes say\n");
  for (double scale : {3.0, 1.5, 0.8, 0.4}) {
    const double lone = bench.lone_gather(2 * steps + 1);
    const double compute = scale * lone;
    Outcome outcome = bench.run(compute, steps);
    if (world->rank() != Rank{0}) continue;
    std::printf(
        "%8.1f ms  %8.1f ms  %8.1f ms | %6.1f ms  %+7.2f %% | %12.1f ms  %+7.2f %% | "
        "%15.1f ms  %+7.2f %%\n",
        1e3 * compute, 1e3 * lone, 1e3 * median(outcome.gather), 1e3 * median(outcome.step),
        median(outcome.step_error), 1e3 * median(outcome.gather_wait), median(outcome.gather_error),
        1e3 * median(outcome.reduce_wait), median(outcome.reduce_error));
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  if (comm::process_environment("RANK")) {
    run_rank(std::atoll(argv[1]), std::atoi(argv[2]));
    return 0;
  }
  const std::vector<std::string> words = {argc > 1 ? argv[1] : "32", argc > 2 ? argv[2] : "9"};
  auto job = launch::RankProcesses::start({"/proc/self/exe", words, kRanks, {}, ""});
  LS_CHECK(job.ok(), job.ok() ? "" : job.error().message);
  for (int rank = 0; rank < kRanks; ++rank)
    if (!job->wait(Rank{rank}, Deadline::never())->ok()) return 1;
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run(argc, argv); }
