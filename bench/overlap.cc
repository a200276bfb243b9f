// Whether communication hides behind computation as the program's lanes say. Two gloo processes run a
// ZeRO-3 step whose computation is synthetic and of fixed length; the simulator, given that length
// and the time of a lone gather and a lone reduction, predicts how long the list stands still in
// Waits. Prints both for computation that is longer and shorter than the gathers.
//   bench_overlap [MiB of a unit's parameters = 32] [steps = 9]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/median.h"
#include "lockstep/base/check.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/exec/executor.h"
#include "lockstep/exec/synthetic.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/schedule/catalog.h"
#include "lockstep/schedule/lower.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/tensor/gloo_world.h"

namespace lockstep {
namespace {

using schedule::OpKind;

constexpr int kRanks = 2;
constexpr int kBlocks = 6;

schedule::Program zero3_program() {
  schedule::StepShape step;
  step.stage_begin = {0, kBlocks + 2};
  step.zero = 3;
  step.period = schedule::Period::kMicrobatch;
  return *schedule::lower(*schedule::find("1f1b")->build({1, 1, 1}), step);
}

bool is_compute(OpKind kind) { return kind == OpKind::kForward || kind == OpKind::kBackward; }

struct Measured {
  double step = 0, gather_wait = 0, reduce_wait = 0;
};

class Bench {
 public:
  Bench(comm::World& world, std::int64_t mib)
      : world_(world),
        program_(zero3_program()),
        mesh_(*mesh::Mesh::create({.dp = kRanks})),
        groups_(world, "", mesh_, false, Deadline::after(Seconds{60})),
        lone_(*groups_.of(schedule::Reach::kShard)[0]),
        elements_(mib * 1024 * 1024 / 4) {}

  // Medians of collectives that have nothing beside them, one after another as in the step.
  void measure_lone(int repeats) {
    std::vector<float> whole(static_cast<std::size_t>(elements_)), part(whole.size() / kRanks);
    const Buffer out = {whole.data(), elements_, DType::kF32, {}};
    const Buffer in = {part.data(), elements_ / kRanks, DType::kF32, {}};
    std::vector<double> gathers, reduces;
    for (int i = 0; i < repeats; ++i) {
      const RealClock clock;
      lone_.all_gather(in, out, Deadline::after(Seconds{60})).wait();
      const double middle = clock.now().since_start.value;
      lone_.reduce_scatter(out, in, Deadline::after(Seconds{60})).wait();
      gathers.push_back(middle);
      reduces.push_back(clock.now().since_start.value - middle);
    }
    gather_ = median(gathers);
    reduce_ = median(reduces);
  }

  Measured run(double compute, int steps) {
    exec::SyntheticWorkspace workspace(
        program_, {0}, world_.rank().value,
        [this](const schedule::Value& value) {
          using schedule::ValueKind;
          if (value.kind == ValueKind::kParam || value.kind == ValueKind::kMainGrad)
            return elements_;
          if (value.kind == ValueKind::kParamShard || value.kind == ValueKind::kReduced)
            return elements_ / kRanks;
          return std::int64_t{16};
        },
        [compute](const schedule::Op& op) { return Seconds{is_compute(op.kind) ? compute : 0.0}; });
    exec::Executor executor(program_, {0}, groups_, workspace, {Seconds{60}});
    std::vector<double> whole, gathers, reduces;
    for (int i = 0; i < steps; ++i) {
      executor.run();
      whole.push_back(executor.timeline().back().end.value);
      gathers.push_back(waited(executor.timeline(), OpKind::kGather));
      reduces.push_back(waited(executor.timeline(), OpKind::kReduce));
    }
    return {median(whole), median(gathers), median(reduces)};
  }

  Measured predict(double compute) const {
    const auto simulated = sim::simulate(program_, [&](Coord, const schedule::Op& op) {
      if (is_compute(op.kind)) return Seconds{compute};
      if (op.kind == OpKind::kGather) return Seconds{gather_};
      return Seconds{op.kind == OpKind::kReduce ? reduce_ : 0.0};
    });
    LS_CHECK(simulated.ok());
    return {simulated->makespan.value, waited(simulated->coords[0], OpKind::kGather),
            waited(simulated->coords[0], OpKind::kReduce)};
  }

  double gather() const { return gather_; }
  double reduce() const { return reduce_; }

 private:
  double waited(const schedule::Timeline& timeline, OpKind target) const {
    const auto& list = program_.lists[0];
    double sum = 0;
    for (const schedule::TimedOp& timed : timeline) {
      const schedule::Op& op = list[static_cast<std::size_t>(timed.op)];
      if (op.kind == OpKind::kWait && list[static_cast<std::size_t>(op.target)].kind == target)
        sum += (timed.end - timed.start).value;
    }
    return sum;
  }

  comm::World& world_;
  schedule::Program program_;
  mesh::Mesh mesh_;
  exec::Groups groups_;
  comm::Communicator& lone_;  // the shard group
  std::int64_t elements_;
  double gather_ = 0, reduce_ = 0;
};

void run_rank(std::int64_t mib, int steps) {
  const auto world = tensor::join_gloo(*comm::rendezvous_from(comm::process_environment),
                                       Deadline::after(Seconds{60}));
  Bench bench(*world, mib);
  for (double scale : {3.0, 1.5, 0.8, 0.4}) {
    bench.measure_lone(2 * steps + 1);
    const double compute = scale * bench.gather();
    const Measured predicted = bench.predict(compute), measured = bench.run(compute, steps);
    if (world->rank() != Rank{0}) continue;
    std::printf(
        "compute %6.1f ms, gather %6.1f, reduce %6.1f | step %7.1f ms, predicted %7.1f (%+.1f %%) "
        "| exposed "
        "gather %6.1f, predicted %6.1f; reduce %6.1f, predicted %6.1f\n",
        1e3 * compute, 1e3 * bench.gather(), 1e3 * bench.reduce(), 1e3 * measured.step,
        1e3 * predicted.step, 100 * (measured.step / predicted.step - 1),
        1e3 * measured.gather_wait, 1e3 * predicted.gather_wait, 1e3 * measured.reduce_wait,
        1e3 * predicted.reduce_wait);
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
