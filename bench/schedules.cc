// Whether schedules take as long as the simulator says. Every schedule of the catalogue runs on
// threads with computation that sleeps: F, I and W of a microbatch on a whole coordinate are of
// equal length. Prints simulated and measured makespan (median over steps), whether the order of
// schedules is the simulated one wherever they differ by more than 3 %, and how much of the
// predicted gain over 1f1b those that put W off get.
//   bench_schedules [coordinates = 8] [ms of F on a coordinate = 40] [steps = 5] [microbatches =
//   2p]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "bench/median.h"
#include "lockstep/base/check.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/exec/executor.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/sim/simulator.h"
#include "tests/support/synthetic.h"

namespace lockstep {
namespace {

using program::OpKind;

constexpr double kTolerance = 0.03;

struct Row {
  std::string name;
  int chunks = 1;
  double simulated = 0, measured = 0;
  double error() const { return measured / simulated - 1; }
};

class Bench {
 public:
  Bench(int coords, int microbatches, Seconds forward, int steps)
      : coords_(coords), microbatches_(microbatches), forward_(forward), steps_(steps) {}

  std::vector<Row> run() const {
    std::vector<Row> rows;
    std::printf(
        "%d pipeline ranks, %d microbatches, F = I = W = %.0f ms on a whole pipeline rank\n\n",
        coords_, microbatches_, 1e3 * forward_.value);
    std::printf("schedule           vpp  simulated   measured    error\n");
    for (const pipeline::CatalogRow& known : pipeline::catalog())
      for (const int chunks : {1, 2, 4}) {
        const auto timetable = known.build({coords_, chunks, microbatches_});
        if (!timetable.ok() || (known.chunks == 0 && chunks == 1)) continue;
        rows.push_back(time(std::string(known.name), *timetable));
        const Row& row = rows.back();
        std::printf("%-14s  %6d  %6.1f ms  %6.1f ms  %+5.2f %%\n", row.name.c_str(), row.chunks,
                    1e3 * row.simulated, 1e3 * row.measured, 100 * row.error());
        std::fflush(stdout);
      }
    return rows;
  }

 private:
  // One block in every stage; embedding and head take no time.
  Row time(std::string name, const pipeline::Schedule& timetable) const {
    const int stages = timetable.shape().stages(), chunks = timetable.shape().chunks;
    program::StepShape step;
    step.stage_begin = program::split_units(stages + 2, stages);
    const program::Program program = *program::lower(timetable, step);
    const auto length = [&](const program::Op& op) {
      const bool is_block = op.unit > 0 && op.unit < step.head() && op.microbatch >= 0;
      const double halves = op.kind == OpKind::kBackward ? 2.0 : 1.0;
      return Seconds{is_block ? forward_.value * halves / chunks : 0.0};
    };
    const auto simulated =
        sim::simulate(program, [&](Coord, const program::Op& op) { return length(op); });
    LS_CHECK(simulated.ok());
    return {std::move(name), chunks, simulated->makespan.value, measure(program, length)};
  }

  double measure(const program::Program& program,
                 const exec::SyntheticWorkspace::Length& length) const {
    const mesh::Mesh mesh = *mesh::Mesh::create({.pp = coords_});
    std::mutex mutex;
    std::vector<SteadyPoint> begins(static_cast<std::size_t>(steps_), SteadyPoint::max());
    std::vector<SteadyPoint> ends(begins.size(), SteadyPoint::min());
    comm::run_local(coords_, [&](comm::World& world) {
      const Deadline deadline = Deadline::after(Seconds{600});
      const exec::Groups groups(world, "", mesh, {}, deadline);
      const Coord coord = mesh.coord(world.rank(), mesh::Axis::kPipeline);
      exec::SyntheticWorkspace workspace(
          program, coord, 0, [](const program::Value&) { return std::int64_t{16}; }, length);
      exec::Executor executor(program, coord, groups, workspace, {Seconds{600}});
      for (std::size_t step = 0; step < begins.size(); ++step) {
        groups.of(program::CommGroup::kPipeline)[0]->barrier(deadline).wait();
        const SteadyPoint begin = std::chrono::steady_clock::now();
        executor.run();
        const std::lock_guard lock(mutex);
        begins[step] = std::min(begins[step], begin);
        ends[step] = std::max(ends[step], std::chrono::steady_clock::now());
      }
    });
    std::vector<double> times;
    for (std::size_t step = 0; step < begins.size(); ++step)
      times.push_back(std::chrono::duration<double>(ends[step] - begins[step]).count());
    return median(times);
  }

  int coords_, microbatches_;
  Seconds forward_;
  int steps_;
};

// Pairs that the simulator tells apart and the run orders the other way.
int misordered(const std::vector<Row>& rows) {
  int wrong = 0;
  for (const Row& fast : rows)
    for (const Row& slow : rows)
      if (slow.simulated > fast.simulated * (1 + kTolerance) && slow.measured <= fast.measured) {
        std::printf("  %s:%d should be faster than %s:%d\n", fast.name.c_str(), fast.chunks,
                    slow.name.c_str(), slow.chunks);
        ++wrong;
      }
  return wrong;
}

bool summarize(const std::vector<Row>& rows) {
  double worst = 0;
  for (const Row& row : rows) worst = std::max(worst, std::abs(row.error()));
  std::printf("\nworst error %.2f %% (at most 3)\n", 100 * worst);
  const int wrong = misordered(rows);
  std::printf("%d pairs in another order than simulated (none)\n", wrong);
  bool gains = true;
  const auto base = std::ranges::find(rows, "1f1b", &Row::name);
  for (const Row& row : rows) {
    if (row.name != "zbv" && row.name != "zb-h1" && row.name != "interleaved-zb") continue;
    const double share = (base->measured - row.measured) / (base->simulated - row.simulated);
    std::printf("%s, %d virtual stages: %.0f %% of the predicted gain over 1f1b (at least 80)\n",
                row.name.c_str(), row.chunks, 100 * share);
    gains = gains && share >= 0.8;
  }
  return worst <= kTolerance && wrong == 0 && gains;
}

int run(int argc, char** argv) {
  const auto number = [&](int at, int usual) { return argc > at ? std::atoi(argv[at]) : usual; };
  const int coords = number(1, 8), milliseconds = number(2, 40), steps = number(3, 5);
  const Bench bench(coords, number(4, 2 * coords), Seconds{milliseconds / 1e3}, steps);
  return summarize(bench.run()) ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::run(argc, argv); }
