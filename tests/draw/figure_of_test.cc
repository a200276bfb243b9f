#include "lockstep/draw/figure_of.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "lockstep/draw/trace.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/text.h"
#include "tests/draw/samples.h"

namespace lockstep::draw {
namespace {

using program::OpKind;

double busy(const Lane& lane) {
  double sum = 0;
  for (const Bar& bar : lane.bars) sum += (bar.end - bar.start).value;
  return sum;
}

TEST(FigureOf, BarsLieInsideTheStepAndNeverOverlap) {
  for (const Figure& figure : all_figures())
    for (const Band& band : figure.bands) {
      ASSERT_EQ(band.lanes.front().kind, LaneKind::kCompute);
      for (const Lane& lane : band.lanes) {
        Seconds free;
        for (const Bar& bar : lane.bars) {
          EXPECT_LE(free, bar.start) << figure.title << " " << lane.name << " " << bar.name;
          EXPECT_LT(bar.start, bar.end) << bar.name;
          free = bar.end;
        }
        EXPECT_LE(free, figure.makespan);
      }
      for (std::size_t i = 1; i < band.memory.size(); ++i)
        EXPECT_LE(band.memory[i - 1].time, band.memory[i].time);
      EXPECT_EQ(band.memory.front().time, Seconds{});
    }
}

TEST(FigureOf, AScheduleIsDrawnWhole) {
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (const int chunks : {1, 2}) {
      const Result<pipeline::Schedule> schedule = row.build({4, chunks, 8});
      if (!schedule.ok()) continue;
      const sim::StageCosts costs = sim::even_costs(schedule->shape(), {2.0}, {4.0}, {6.0}, {1.0});
      const sim::StageTimes times = sim::simulate_stages(*schedule, costs);
      const Figure figure = figure_of(*schedule, times);
      EXPECT_EQ(work(figure), times.work);
      EXPECT_EQ(bubble(figure), times.bubble());
      for (int c = 0; c < 4; ++c) {
        const Band& band = figure.bands[static_cast<std::size_t>(c)];
        const auto passes = schedule->passes({c});
        ASSERT_EQ(band.lanes.front().bars.size(), passes.size());
        for (std::size_t i = 0; i < passes.size(); ++i)
          EXPECT_EQ(band.lanes.front().bars[i].name, to_text(passes[i]));
        EXPECT_EQ(busy(band.lanes.front()), 8 * 12.0) << row.name;
        EXPECT_EQ(peak(band) * chunks, times.peak[static_cast<std::size_t>(c)]) << row.name;
        EXPECT_EQ(band.memory.back().held, 0);
      }
    }
}

// Every op that takes time is a bar of the lane it runs on, for exactly that time.
TEST(FigureOf, AProgramIsDrawnWhole) {
  for (const Lowered& sample : lowered_samples()) {
    const Figure figure = figure_of(sample.program, sample.simulation);
    for (std::size_t c = 0; c < sample.program.lists.size(); ++c) {
      std::map<std::string, double> expected, drawn;
      for (const program::Op& op : sample.program.lists[c]) {
        if (op.kind == OpKind::kWait || op.kind == OpKind::kFree) continue;
        // A transfer takes what its sender says, at both ends.
        const bool is_transfer = op.transfer >= 0;
        const program::Op sent = {.kind = OpKind::kSend};
        const double cost = cost_of({}, is_transfer ? sent : op).value;
        if (cost > 0) expected[op_token(sample.program.step, op)] += cost;
      }
      for (const Lane& lane : figure.bands[c].lanes)
        for (const Bar& bar : lane.bars) drawn[bar.name] += (bar.end - bar.start).value;
      EXPECT_EQ(drawn, expected) << sample.name << " pipeline rank " << c;
    }
  }
}

TEST(FigureOf, LanesSayWhatRunsOnThem) {
  for (const Lowered& sample : lowered_samples())
    for (const Band& band : figure_of(sample.program, sample.simulation).bands)
      for (const Lane& lane : band.lanes)
        for (const Bar& bar : lane.bars) {
          const bool is_transfer = bar.ink == Ink::kTransfer;
          EXPECT_EQ(lane.kind == LaneKind::kTransfer, is_transfer) << bar.name;
          EXPECT_TRUE(bar.ink != Ink::kGather || lane.kind == LaneKind::kCollective) << bar.name;
          EXPECT_TRUE(bar.ink != Ink::kForward || lane.kind == LaneKind::kCompute) << bar.name;
          if (is_transfer) {
            EXPECT_EQ(lane.name.starts_with("send"), bar.name.starts_with("send"));
            EXPECT_GE(bar.microbatch, 0);
          }
        }
}

// Coordinates come to the norm at different times and compute it together.
TEST(FigureOf, AMeetingBeginsWhenTheLastHasCome) {
  for (const Lowered& sample : lowered_samples()) {
    std::vector<Seconds> starts;
    for (const Band& band : figure_of(sample.program, sample.simulation).bands)
      for (const Bar& bar : band.lanes.front().bars)
        if (bar.name == "norm") starts.push_back(bar.start);
    ASSERT_EQ(starts.size(), sample.program.lists.size());
    for (const Seconds start : starts) EXPECT_EQ(start, starts.front()) << sample.name;
  }
}

program::ProgramBytes some_bytes(const program::Program& program) {
  program::ProgramBytes bytes;
  for (int unit = 0; unit < program.step.units(); ++unit)
    bytes.units.push_back({.act = 3,
                           .checkpoint = 5,
                           .stash = 40 + unit,
                           .weight_work = 30,
                           .param = 100,
                           .param_shard = 11,
                           .main_grad = 200,
                           .grad_shard = 13,
                           .optimizer = 17,
                           .backward = 500,
                           .first_backward = 500});
  bytes.tokens.resize(program.lists.size(), 2);
  bytes.constants.resize(program.lists.size(), 1000);
  return bytes;
}

// Even a peak inside an op that takes no time is held for an instant.
TEST(FigureOf, BytesAreThoseOfTheMemoryWalk) {
  const sim::Cost nothing = [](Coord, const program::Op&) { return Seconds{}; };
  for (const Lowered& sample : lowered_samples()) {
    const program::Program& program = sample.program;
    const program::ProgramBytes bytes = some_bytes(program);
    for (const sim::Simulation& run :
         {sample.simulation, sim::simulate(program, nothing).value()}) {
      const Figure figure = figure_of(program, run, bytes);
      EXPECT_EQ(figure.memory_unit, "B");
      for (std::size_t c = 0; c < program.lists.size(); ++c) {
        const program::MemoryWalk walked = walk(program, {static_cast<int>(c)}, bytes);
        EXPECT_EQ(peak(figure.bands[c]), static_cast<double>(walked.peak)) << sample.name;
        EXPECT_EQ(figure.bands[c].memory.back().held, static_cast<double>(walked.live.back()));
      }
    }
  }
}

// Receives may be posted in another order than tensors pass.
TEST(FigureOf, ALaneIsInTheOrderOfTime) {
  Lowered sample = lowered_samples().front();
  const auto is_send = [&](const program::TimedOp& timed) {
    return sample.program.lists[0][static_cast<std::size_t>(timed.op)].kind == OpKind::kSend;
  };
  program::Timeline& lanes = sample.simulation.lanes[0];
  const auto first = std::ranges::find_if(lanes, is_send);
  const auto second = std::find_if(first + 1, lanes.end(), is_send);
  ASSERT_NE(second, lanes.end());
  std::swap(first->start, second->start);
  std::swap(first->end, second->end);
  const Figure figure = figure_of(sample.program, sample.simulation);
  for (const Lane& lane : figure.bands[0].lanes)
    EXPECT_TRUE(std::ranges::is_sorted(lane.bars, {}, &Bar::start)) << lane.name;
}

// Parts of a computation lie inside its bar, collectives beside it on the lane of their group.
TEST(FigureOf, PartsAreInsideOfTheirBarsAndCollectivesBeside) {
  Lowered sample = lowered_samples().front();
  const auto& list = sample.program.lists[0];
  for (const program::Timeline& coord : sample.simulation.coords) {
    auto& parts = sample.simulation.parts.emplace_back();
    for (const program::TimedOp& op : coord) {
      const Seconds middle = (op.start + op.end) * 0.5;
      if (&coord != &sample.simulation.coords[0] || list[op.op].kind != OpKind::kForward) continue;
      parts.push_back({op.op, "linear_grad", "qkv", op.start, middle});
      parts.push_back({op.op, "all_reduce", "", middle, op.end, /*is_beside=*/true});
      parts.push_back({op.op, "linear_weight", "qkv", middle, op.end});
    }
  }
  Figure figure = figure_of(sample.program, sample.simulation);
  divide_times(figure, 2);
  const Band& band = figure.bands[0];
  const auto tensor = std::ranges::find(band.lanes, "tensor", &Lane::name);
  ASSERT_NE(tensor, band.lanes.end());
  ASSERT_GT(tensor->bars.size(), 2U);
  ASSERT_EQ(band.parts.size(), 2 * tensor->bars.size());
  EXPECT_EQ(band.parts[1].name, "linear_weight qkv");
  EXPECT_EQ(tensor->bars[0].ink, Ink::kReduce);
  for (std::size_t i = 0; i < tensor->bars.size(); ++i) {
    EXPECT_EQ(tensor->bars[i].start, band.parts[2 * i + 1].start);
    EXPECT_EQ(band.parts[2 * i].microbatch, tensor->bars[i].microbatch);
  }
  const std::string text = draw::trace(figure);
  EXPECT_NE(text.find("linear_grad qkv"), std::string::npos);
  EXPECT_TRUE(figure.bands[1].parts.empty());
}

TEST(FigureOf, AProgramHoldsWhatItsScheduleHolds) {
  for (const auto& [name, shape] :
       {std::pair{"zb-h1", pipeline::Shape{4, 1, 8}}, {"zbv", {4, 2, 8}}}) {
    const pipeline::Schedule schedule = built(name, shape);
    const program::StepShape step = {.stage_begin =
                                         program::split_units(shape.stages() + 2, shape.stages())};
    const program::Program program = program::lower(schedule, step).value();
    const Figure whole = figure_of(program, sim::simulate(program, cost_of).value());
    const Figure stages = staged(name, shape);
    for (std::size_t c = 0; c < 4; ++c)
      EXPECT_EQ(peak(whole.bands[c]), peak(stages.bands[c])) << name << " " << c;
  }
}

TEST(FigureOf, HeadingsSayWhatIsSeen) {
  Figure figure = staged("1f1b", {4, 1, 8});
  EXPECT_EQ(figure.shape, "4 pipeline ranks, 8 microbatches");
  EXPECT_EQ(summary(figure), "step time 33 F, bubble 9 F (27.3 %), peak 4 microbatches");
  figure.time_unit = "s";
  figure.memory_unit = "B";
  EXPECT_EQ(summary(figure), "step time 33 s, bubble 9 s (27.3 %), peak 4 B");
  EXPECT_EQ(figure_of(lowered_samples()[1].program, lowered_samples()[1].simulation).shape,
            "3 pipeline ranks, 2 virtual stages, 6 microbatches, 14 units, ZeRO-1");
}

}  // namespace
}  // namespace lockstep::draw
