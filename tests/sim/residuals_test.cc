#include "lockstep/sim/residuals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "tests/sim/random_program.h"

namespace lockstep::sim {
namespace {

using program::OpKind;

// A run that took just the simulated times, on two ranks of every coordinate.
program::StepTimeline as_measured(const Simulation& simulation) {
  program::StepTimeline step;
  for (std::size_t c = 0; c < simulation.coords.size(); ++c)
    for (const int replica : {0, 1})
      step.ranks.push_back({{static_cast<int>(2 * c) + replica},
                            {static_cast<int>(c)},
                            simulation.coords[c],
                            simulation.lanes[c]});
  return step;
}

Conditions with_host(std::uint64_t seed) {
  return {.latency = random_cost(seed + 1), .host = random_cost(seed + 2)};
}

TEST(Residuals, OfWhatTheSimulatorWroteAreExactlyNothing) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Dice dice(seed);
    const program::Program program = random_program(dice);
    const Simulation simulation = simulate(program, random_cost(seed), with_host(seed)).value();
    const Residuals found = residuals(program, simulation, as_measured(simulation));
    EXPECT_EQ(found.predicted, simulation.makespan);
    EXPECT_EQ(found.error(), 0);
    for (const Residual& row : found.rows) EXPECT_EQ(row.difference(), Seconds{}) << row.what;
  }
}

// Of any run: the parts are the whole.
TEST(Residuals, AddUpToTheStep) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Dice dice(seed);
    const program::Program program = random_program(dice);
    const Simulation predicted = simulate(program, random_cost(seed)).value();
    const Simulation other = simulate(program, random_cost(seed + 7), with_host(seed)).value();
    const Residuals found = residuals(program, predicted, as_measured(other));
    double expected = 0, seen = 0;
    for (const Residual& row : found.rows) {
      expected += row.predicted.value;
      seen += row.measured.value;
    }
    // Costs are whole numbers and there are two ranks of each list, so only the mean rounds.
    EXPECT_NEAR(expected, predicted.makespan.value, 1e-9 * predicted.makespan.value);
    EXPECT_NEAR(seen, other.makespan.value, 1e-9 * other.makespan.value);
    EXPECT_EQ(found.measured, other.makespan);
  }
}

program::Program pipeline_of_two() {
  program::StepShape step;
  step.stage_begin = program::split_units(4, 2);
  return program::lower(pipeline::find("gpipe")->build({2, 1, 1}).value(), step).value();
}

Cost plain(double forward, double send) {
  return [=](Coord, const program::Op& op) {
    const bool is_block = op.unit == 1 || op.unit == 2;
    if (op.kind == OpKind::kForward && is_block) return Seconds{forward};
    return Seconds{op.kind == OpKind::kSend ? send : 0.0};
  };
}

// Two coordinates, one microbatch, F alone takes time: what is slower there makes the other wait.
TEST(Residuals, NameTheCause) {
  const program::Program program = pipeline_of_two();
  const Simulation fast = simulate(program, plain(4, 1)).value();
  const auto against = [&](double forward, double send) {
    return residuals(program, fast, as_measured(simulate(program, plain(forward, send)).value()));
  };
  // F 4 -> 6 on both: each computes 2 more, and waits 2 more for the other.
  const Residuals slow_compute = against(6, 1);
  EXPECT_EQ(slow_compute.total(Cause::kCompute).difference(), Seconds{2});
  EXPECT_EQ(slow_compute.total(Cause::kWait).difference(), Seconds{2});
  EXPECT_EQ(slow_compute.total(Cause::kHop).difference(), Seconds{0});
  EXPECT_EQ(slow_compute.measured - slow_compute.predicted, Seconds{4});
  // One hop there and one back, each 2 more, on the list that stands at the Wait.
  const Residuals slow_hop = against(4, 3);
  EXPECT_EQ(slow_hop.total(Cause::kCompute).difference(), Seconds{0});
  EXPECT_GT(slow_hop.total(Cause::kHop).difference(), Seconds{0});
  EXPECT_EQ(slow_hop.measured - slow_hop.predicted, Seconds{4});
}

// Where a backend cannot say when an op ran, all of its Wait is waiting.
TEST(Residuals, WithoutLanesStillAddUp) {
  const program::Program program = pipeline_of_two();
  const Simulation simulation = simulate(program, plain(4, 1)).value();
  program::StepTimeline blind = as_measured(simulation);
  for (program::RankTimeline& rank : blind.ranks) rank.lanes.clear();
  const Residuals found = residuals(program, simulation, blind);
  double sum = 0;
  for (const Residual& row : found.rows) sum += row.difference().value;
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(found.total(Cause::kHop).measured, Seconds{0});
}

}  // namespace
}  // namespace lockstep::sim
