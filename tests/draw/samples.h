// Figures of schedules and programs of every kind, with costs that are whole numbers so that sums
// are exact.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/draw/figure_of.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"

namespace lockstep::draw {

inline pipeline::Schedule built(const char* name, const pipeline::Shape& shape) {
  return pipeline::find(name)->build(shape).value();
}

// F, I and W of a chunk take one unit each.
inline Figure staged(const char* name, const pipeline::Shape& shape) {
  const pipeline::Schedule schedule = built(name, shape);
  const Seconds whole = {static_cast<double>(shape.chunks)};
  Figure figure = figure_of(
      schedule, sim::simulate_stages(schedule, sim::even_costs(shape, whole, whole, whole)));
  figure.title = name;
  figure.time_unit = "F";
  return figure;
}

// At least 1, but loading takes no time.
inline Seconds cost_of(Coord, const program::Op& op) {
  if (op.kind == program::OpKind::kLoad) return {};
  return {1.0 + static_cast<int>(op.kind) * 5 % 7 + std::max(op.unit, 0) % 3};
}

struct Lowered {
  std::string name;
  program::Program program;
  sim::Simulation simulation;
};

// Every ZeRO stage, one and two chunks, with replicas, recompute, tied weights and a period per
// microbatch; and evaluation.
inline std::vector<Lowered> lowered_samples() {
  std::vector<Lowered> samples;
  const auto add = [&](const std::string& name, program::Program program) {
    sim::Simulation simulation = sim::simulate(program, cost_of).value();
    samples.push_back({name, std::move(program), std::move(simulation)});
  };
  for (int zero = 0; zero <= 3; ++zero) {
    const bool is_even = zero % 2 == 0;
    const pipeline::Shape shape = {3, is_even ? 1 : 2, 6};
    program::StepShape step = {.stage_begin = program::split_units(14, shape.stages()),
                               .zero = zero,
                               .replicas = zero >= 2,
                               .tied = is_even};
    if (zero == 2) step.period = program::Period::kMicrobatch;
    if (zero == 3) step.recompute = std::vector<bool>(14, true);
    if (zero == 3) step.recompute.front() = step.recompute.back() = false;
    const char* name = is_even ? "zb-h1" : "interleaved";
    add(std::string(name) + " ZeRO-" + std::to_string(zero),
        program::lower(built(name, shape), step).value());
  }
  add("evaluation",
      program::lower_forward_only(
          {.shape = {.coords = 2, .microbatches = 3}, .stage_begin = {0, 2, 4}, .zero = 3})
          .value());
  return samples;
}

inline std::vector<Figure> all_figures() {
  std::vector<Figure> figures = {
      staged("1f1b", {4, 1, 8}),        staged("1f1b", {8, 1, 32}),  staged("zbv", {4, 2, 8}),
      staged("interleaved", {4, 4, 8}), staged("gpipe", {1, 1, 1}),  staged("zb-h1", {3, 1, 12}),
      staged("v-min", {6, 2, 12}),      staged("1f1b", {64, 1, 80}), staged("gpipe", {4, 1, 150}),
  };
  for (const Lowered& sample : lowered_samples()) {
    figures.push_back(figure_of(sample.program, sample.simulation));
    figures.back().title = sample.name;
  }
  return figures;
}

}  // namespace lockstep::draw
