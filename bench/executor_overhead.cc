// What the executor itself costs per op: a step whose values are a few bytes and whose computation
// takes no time, on one rank and on a pipeline of two threads.
//   bench_executor_overhead [steps = 200]
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "bench/median.h"
#include "lockstep/comm/local/local.h"
#include "lockstep/exec/executor.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "tests/support/synthetic.h"

namespace lockstep {
namespace {

constexpr int kBlocks = 24, kMicrobatches = 16;

void measure(int pp, int zero, int steps) {
  program::StepShape step;
  step.zero = zero;
  step.period = program::Period::kMicrobatch;
  step.stage_begin = program::split_units(kBlocks + 2, pp);
  const program::Program program =
      *program::lower(*pipeline::find("1f1b")->build({pp, 1, kMicrobatches}), step);
  const mesh::Mesh mesh = *mesh::Mesh::create({.pp = pp});
  comm::run_local(pp, [&](comm::World& world) {
    const exec::Groups groups(world, "", mesh, {}, Deadline::after(Seconds{60}));
    const Coord coord = mesh.coord(world.rank(), mesh::Axis::kPipeline);
    exec::SyntheticWorkspace workspace(
        program, coord, 0, [](const program::Value&) { return std::int64_t{4}; },
        [](const program::Op&) { return Seconds{-1}; });
    exec::Executor executor(program, coord, groups, workspace, {Seconds{60}});
    std::vector<double> per_op;
    for (int i = 0; i < steps; ++i) {
      executor.run();
      const auto ops = static_cast<double>(program.list(coord).size());
      per_op.push_back(executor.timeline().back().end.value / ops);
    }
    if (world.rank() == Rank{0})
      std::printf("pp %d, zero %d: %zu ops, %.2f us per op\n", pp, zero, program.list(coord).size(),
                  1e6 * median(per_op));
  });
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
  for (int zero : {0, 1, 2, 3}) lockstep::measure(1, zero, steps);
  lockstep::measure(2, 3, steps);
  return 0;
}
