#include "lockstep/cost/measured/calibrated_prices.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lockstep/cost/measured/calibration_fit.h"
#include "lockstep/program/effects.h"
#include "lockstep/program/text.h"
#include "tests/cost/measured/calibrations.h"

namespace lockstep::cost {
namespace {

using program::Op;
using program::OpKind;
using program::Period;
using program::StepTimeline;
using program::TimedOp;
using program::Timeline;

constexpr std::int64_t kRanks = 2;

struct PricedWorld {
  model::Model model;
  program::Program program;
  StepSizes sizes;
  mesh::Mesh mesh;

  Result<CalibratedPrices> prices(const Calibration& known) const {
    return CalibratedPrices::create(known, program, model, sizes, mesh, "cal.json");
  }
};

// Data ranks only where there is no pipeline.
PricedWorld priced_world(const Layout& layout, std::int64_t ranks = kRanks) {
  const model::Model model = tiny(layout.tied);
  mesh::Degrees degrees;
  degrees.pp = layout.pp;
  degrees.dp = layout.pp == 1 ? ranks : 1;
  StepSizes sizes;
  sizes.unit = {.batch = 1, .seq = 16};
  sizes.shards = degrees.dp;
  return {model, program_of(layout, model.num_units()), sizes, *mesh::Mesh::create(degrees)};
}

constexpr Seconds kMeeting = {4096};

// One op after the other, each as long as it is priced: a world without overlap. Lanes run at their
// Wait, which then takes them over; all ranks come to Norm at once.
StepTimeline one_by_one(const PricedWorld& world, const CalibratedPrices& prices) {
  StepTimeline step;
  for (int r = 0; r < world.mesh.world(); ++r) {
    const Coord coord = world.mesh.coord({r}, mesh::Axis::kPipeline);
    program::RankTimeline rank{{r}, coord, {}, {}};
    Seconds now;
    const auto& list = world.program.list(coord);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind == OpKind::kNorm) now = kMeeting;
      const Seconds start = now;
      const auto number = static_cast<std::int32_t>(i);
      if (list[i].kind == OpKind::kWait) {
        const Seconds lane = prices.time(coord, list[static_cast<std::size_t>(list[i].target)]);
        rank.lanes.push_back({list[i].target, now, now + lane});
        now += lane + prices.host(coord, list[i]);
      } else if (is_async(list[i].kind)) {
        now += prices.host(coord, list[i]);
      } else if (list[i].kind != OpKind::kFree) {
        now += prices.time(coord, list[i]);
      }
      rank.ops.push_back({number, start, now});
    }
    step.ranks.push_back(std::move(rank));
  }
  return step;
}

// Of layouts that a calibration measures.
std::vector<PricedWorld> probes() {
  std::vector<bool> blocks(static_cast<std::size_t>(tiny().num_units()), true);
  blocks.front() = blocks.back() = false;
  return {priced_world({.microbatches = 3}), priced_world({.microbatches = 2, .recompute = blocks}),
          priced_world({.microbatches = 2, .zero = 3, .period = Period::kMicrobatch}),
          priced_world({.pp = 2, .microbatches = 3, .schedule = "zb-h1"})};
}

// What was measured comes out again: op by op for every layout, those that were not measured too.
TEST(CalibrationFit, FindsTheTimesThatStepsWereMadeOf) {
  const Calibration truth = some_calibration(kRanks);
  const std::vector<PricedWorld> worlds = probes();
  std::vector<std::vector<StepTimeline>> steps;
  std::vector<Probe> measured;
  for (const PricedWorld& world : worlds)
    steps.push_back({one_by_one(world, world.prices(truth).value())});
  for (std::size_t i = 0; i < worlds.size(); ++i)
    measured.push_back(
        {worlds[i].program, worlds[i].model, worlds[i].sizes, worlds[i].mesh, steps[i]});
  Calibration found;
  found.collectives = truth.collectives;
  fit_ops(measured, found);
  for (const auto& [name, pass] : found.passes)
    EXPECT_NEAR(pass.time.value, truth.passes.at(name).time.value, 1e-12) << name;
  const PricedWorld others[] = {
      priced_world({.microbatches = 5, .zero = 1}),
      priced_world({.microbatches = 3, .zero = 2, .period = Period::kMicrobatch}),
      priced_world({.pp = 2, .microbatches = 4}),
      priced_world({.pp = 2, .microbatches = 4, .schedule = "zb-h1"})};
  for (const PricedWorld& world : others) {
    const CalibratedPrices expected = world.prices(truth).value(),
                           got = world.prices(found).value();
    for (int c = 0; c < world.program.step.shape.coords; ++c)
      for (const Op& op : world.program.list({c})) {
        const std::string what = op_text(world.program, {c}, op);
        if (op.kind != OpKind::kWait && op.kind != OpKind::kFree) {
          EXPECT_NEAR(got.time({c}, op).value, expected.time({c}, op).value, 1e-9) << what;
        }
        if (op.kind == OpKind::kWait || is_async(op.kind)) {
          EXPECT_NEAR(got.host({c}, op).value, expected.host({c}, op).value, 1e-9) << what;
        }
      }
  }
}

// A pass beside something in flight is longer than it is; it does not count where another does.
TEST(CalibrationFit, LeavesOutWhatWasDisturbed) {
  const Calibration truth = some_calibration(kRanks);
  const PricedWorld world = priced_world({.microbatches = 3});
  StepTimeline step = one_by_one(world, world.prices(truth).value());
  for (program::RankTimeline& rank : step.ranks) {
    int in_flight = 0;
    Seconds late;
    for (program::TimedOp& timed : rank.ops) {
      const Op& op = world.program.list(rank.coord)[static_cast<std::size_t>(timed.op)];
      timed.start += late;
      in_flight += is_async(op.kind) ? 1 : op.kind == OpKind::kWait ? -1 : 0;
      if (in_flight > 0 && op.kind == OpKind::kBackward) late += Seconds{1};
      timed.end += late;
    }
    EXPECT_GT(late, Seconds{0});
  }
  const std::vector<StepTimeline> steps = {step};
  const Probe probe = {world.program, world.model, world.sizes, world.mesh, steps};
  Calibration found;
  found.collectives = truth.collectives;
  fit_ops(std::span(&probe, 1), found);
  for (const char* pass : {"block.B", "block.B.first", "block.F", "embed.B"})
    EXPECT_NEAR(found.passes.at(pass).time.value, truth.passes.at(pass).time.value, 1e-9) << pass;
}

// A step that was disturbed changes nothing.
TEST(CalibrationFit, TakesTheMedianOfSteps) {
  const Calibration truth = some_calibration(kRanks);
  const PricedWorld world = priced_world({.microbatches = 2});
  std::vector<StepTimeline> steps;
  for (const double slower : {3.0, 1.0, 2.0, 1.0, 1.0}) {
    steps.push_back(one_by_one(world, world.prices(truth).value()));
    for (program::RankTimeline& rank : steps.back().ranks)
      for (Timeline* timeline : {&rank.ops, &rank.lanes})
        for (program::TimedOp& timed : *timeline)
          timed = {timed.op, timed.start * slower, timed.end * slower};
  }
  const Probe probe = {world.program, world.model, world.sizes, world.mesh, steps};
  Calibration found;
  found.collectives = truth.collectives;
  fit_ops(std::span(&probe, 1), found);
  EXPECT_NEAR(found.passes.at("block.F").time.value, truth.passes.at("block.F").time.value, 1e-12);
}

TEST(CalibratedPrices, RefuseWhatTheyDoNotKnow) {
  const PricedWorld world = priced_world({.microbatches = 2});
  EXPECT_TRUE(world.prices(some_calibration(kRanks)).ok());
  const auto refused = world.prices(some_calibration(4));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kConflict);
  EXPECT_EQ(refused.error().message,
            "`cal.json` does not know all_reduce of 2 ranks, which count of valid tokens needs");
  Calibration without = some_calibration(kRanks);
  without.passes.erase("block.B.first");
  const auto missing = world.prices(without);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("the pass block.B.first, which B of unit"),
            std::string::npos)
      << missing.error().message;
}

TEST(CalibratedPrices, NobodyToTalkToTakesNoTime) {
  const PricedWorld alone =
      priced_world({.microbatches = 2, .zero = 3, .period = Period::kMicrobatch}, 1);
  const CalibratedPrices prices = alone.prices(some_calibration(kRanks)).value();
  for (const Op& op : alone.program.lists[0])
    if (op.kind == OpKind::kGather || op.kind == OpKind::kReduce) {
      EXPECT_EQ(prices.time({0}, op), Seconds{0});
      EXPECT_EQ(prices.host({0}, op), Seconds{0});
    }
}

// A pass takes what was measured, less what runs beside collectives: with sequence parallelism two
// gathers and two sums of a backward pass that is not the first, and one gather of the head.
TEST(CalibratedPrices, TakesOffWhatRunsBesideCollectives) {
  for (const bool overlap : {false, true}) {
    PricedWorld world = priced_world({.microbatches = 2, .tensor_parallel = true});
    mesh::Degrees degrees;
    degrees.tp = kRanks;
    world.mesh = *mesh::Mesh::create(degrees);
    world.sizes.unit.tp = kRanks;
    world.sizes.unit.sequence_parallel = true;
    world.sizes.unit.tp_overlap = overlap;
    world.sizes.shards = 1;
    Calibration known = some_calibration(kRanks);
    EXPECT_EQ(world.prices(known).error().message, "`cal.json` does not know the parts of embed.F");
    add_parts(known, world.model, world.sizes.unit);
    const CalibratedPrices prices = world.prices(known).value();
    int shorter = 0;
    for (const Op& op : world.program.list({0})) {
      const std::string pass =
          op.unit < 0 ? "" : pass_name(world.program.step, world.model.unit(op.unit), op);
      if (pass.empty()) continue;
      const int hidden = !overlap ? 0 : pass == "block.B" ? 4 : pass.starts_with("head.B") ? 1 : 0;
      EXPECT_EQ(prices.time({0}, op), known.passes.at(pass).time - Seconds{hidden / 1024.0})
          << pass;
      shorter += hidden;
    }
    EXPECT_EQ(shorter > 0, overlap);
    // Parts fill the computations that they are of, one behind the other; collectives lie beside.
    const StepTimeline step = one_by_one(world, prices);
    std::map<int, Seconds> ends;
    int beside = 0;
    for (const program::TimedPart& part : prices.parts({0}, step.ranks[0].ops)) {
      const TimedOp& op = step.ranks[0].ops[static_cast<std::size_t>(part.op)];
      const auto before = ends.try_emplace(part.op, op.start).first;
      EXPECT_LE(part.end.value, op.end.value + 1e-12);
      if (part.is_beside) {
        ++beside;
        continue;
      }
      EXPECT_NEAR(part.start.value, before->second.value, 1e-12);
      before->second = part.end;
    }
    for (const auto& [op, end] : ends)
      EXPECT_NEAR(end.value, step.ranks[0].ops[static_cast<std::size_t>(op)].end.value, 1e-12);
    EXPECT_GT(beside, 0);
    known.parts["block.B"].pop_back();
    EXPECT_EQ(world.prices(known).error().message, "`cal.json` does not know the parts of block.B");
  }
}

}  // namespace
}  // namespace lockstep::cost
