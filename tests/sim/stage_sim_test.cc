#include "lockstep/sim/stage_sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/program/lower.h"
#include "lockstep/sim/simulator.h"
#include "tests/support/fuse.h"

namespace lockstep::sim {
namespace {

using pipeline::CatalogRow;
using pipeline::Pass;
using pipeline::PassKind;
using pipeline::Placement;
using pipeline::Schedule;

// Whole numbers that 2, 3 and 4 chunks divide, so all arithmetic below is exact.
struct Mix {
  double f, i, w;
};
constexpr Mix kMixes[] = {{60, 60, 60},    {60, 72, 48},     {60, 48, 72},      {60, 120, 60},
                          {60, 60, 120},   {120, 60, 60},    {120, 96, 144},    {120, 84, 84},
                          {120, 132, 132}, {120, 180, 180},  {120, 240, 240},   {120, 360, 360},
                          {120, 48, 48},   {1200, 804, 804}, {1200, 1224, 1224}};

struct Case {
  int p, v, m;
  double f, i, w;
  pipeline::PipelineTerms pipeline() const { return {double(p), double(v), double(m), f, i, w}; }
};

double fused(const Case& c) { return (c.p - 1) * (c.f + c.i + c.w); }
double delayed(const Case& c) { return (c.p - 1) * std::max({c.f, c.i, c.f + c.i - c.w}); }

StageTimes time(const Schedule& schedule, const Case& c, double hop = 0) {
  return simulate_stages(schedule, even_costs(schedule.shape(), {c.f}, {c.i}, {c.w}, {hop}));
}

std::string show(std::string_view name, const Case& c) {
  return strf("%s p%d v%d m%d %g/%g/%g", std::string(name).c_str(), c.p, c.v, c.m, c.f, c.i, c.w);
}

// What prices use, against the schedule itself: exactly, wherever a row says that it holds. Beyond
// that a bubble may be anything, but memory is never more than said.
TEST(ClosedForms, HoldInTheirDomainsExactly) {
  for (const CatalogRow& row : pipeline::catalog()) {
    int bubbles = 0, peaks = 0, beyond = 0;
    for (int p = 2; p <= 16; ++p)
      for (int v = 1; v <= 4; ++v)
        for (const int m : {1, 2, 3, 5, 6, 8, 11, 12, 16, 24, 31, 32, 48}) {
          const auto made = row.build({p, v, m});
          if (!made.ok()) continue;
          for (const Mix& mix : kMixes) {
            const Case c = {p, v, m, mix.f, mix.i, mix.w};
            const pipeline::PipelineTerms pipeline = c.pipeline();
            const StageTimes times = time(*made, c);
            ASSERT_EQ(times.work.value, m * (c.f + c.i + c.w));
            const bool holds = row.holds(pipeline);
            if (holds) {
              ASSERT_EQ(times.bubble().value, row.idle(pipeline)) << show(row.name, c);
            }
            bubbles += holds ? 1 : 0, beyond += holds ? 0 : 1;
            if (&mix != kMixes) continue;
            for (int r = 0; r < p; ++r, ++peaks) {
              const double peak = times.peak[static_cast<std::size_t>(r)],
                           held = v * row.held(pipeline, r);
              if (holds || row.chunks != 2) {
                ASSERT_DOUBLE_EQ(peak, held) << show(row.name, c) << " r" << r;
              } else {
                ASSERT_LE(peak, held) << show(row.name, c) << " r" << r;
              }
            }
          }
        }
    std::cout << row.name << ": " << bubbles << " bubbles and " << peaks << " peaks, " << beyond
              << " outside\n";
    EXPECT_GE(bubbles, 400) << row.name;
  }
}

// Any times and shapes, wherever a row says that it holds.
TEST(ClosedForms, HoldForRandomTimes) {
  std::mt19937 random(7);
  const auto draw = [&](int least, int most) {
    return least + static_cast<int>(random() % static_cast<unsigned>(most - least + 1));
  };
  for (const CatalogRow& row : pipeline::catalog()) {
    int cases = 0;
    for (int round = 0; round < 1500; ++round) {
      const int p = draw(2, 12), v = row.chunks == 0 ? draw(1, 3) : row.chunks;
      Case c = {p, v, draw(1, 4 * p), 12.0 * draw(1, 20), 12.0 * draw(1, 20), 12.0 * draw(1, 20)};
      if (round % 2 == 0) c.w = c.i;
      const auto made = row.build({c.p, c.v, c.m});
      if (!made.ok() || !row.holds(c.pipeline())) continue;
      ASSERT_EQ(time(*made, c).bubble().value, row.idle(c.pipeline())) << show(row.name, c);
      ++cases;
    }
    EXPECT_GE(cases, 100) << row.name;
  }
}

TEST(ClosedForms, HoldForFreeGroups) {
  int cases = 0;
  for (int p = 2; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = p; m <= 24; m += 2 + m % 3)
        for (int group = p; group <= m; ++group) {
          if (m % group > 0 && m % group < p) continue;
          for (const Mix& mix : {kMixes[0], kMixes[1], kMixes[2]}) {
            const Case c = {p, v, m, mix.f, mix.i, mix.w};
            const StageTimes plain = time(*pipeline::interleaved({p, v, m}, group), c);
            const StageTimes zb = time(*pipeline::interleaved_zb({p, v, m}, group), c);
            ASSERT_EQ(plain.bubble().value * v, fused(c)) << show("interleaved", c) << " " << group;
            ASSERT_EQ(zb.bubble().value * v, delayed(c))
                << show("interleaved-zb", c) << " " << group;
            cases += 2;
            for (int r = 0; r < p; ++r) {
              const int most = m * v, before = (v - 1) * group;
              ASSERT_EQ(plain.peak[static_cast<std::size_t>(r)],
                        std::min(most, before + 2 * (p - 1 - r) + 1));
              ASSERT_EQ(zb.peak[static_cast<std::size_t>(r)], std::min(most, before + p));
            }
          }
        }
  std::cout << cases << " bubbles with free groups equal their closed forms\n";
}

// Hops of gpipe, and those of eager-1f1b that hide behind compute, are paid once on the way there
// and once on the way back.
TEST(ClosedForms, HoldWithHops) {
  for (int p = 2; p <= 16; ++p)
    for (const int m : {1, 2, 7, 16, 33})
      for (const double hop : {3, 12, 60, 400})
        for (const Mix& mix : kMixes) {
          const Case c = {p, 1, m, mix.f, mix.i, mix.w};
          for (const auto build : {pipeline::gpipe, pipeline::eager_1f1b}) {
            if (build == pipeline::eager_1f1b && 2 * hop > c.f + c.i + c.w) continue;
            ASSERT_EQ(time(*build({p, 1, m}), c, hop).bubble().value, fused(c) + 2 * (p - 1) * hop)
                << show("", c) << " " << hop;
          }
        }
}

// Outside the domain: weight gradients that take longer than input gradients (p = 16, m = 64).
TEST(ClosedForms, ZbH1WithLongWeightGradients) {
  EXPECT_EQ(time(*pipeline::zb_h1({16, 1, 64}), {16, 1, 64, 10, 8, 12}).bubble().value, 150);
}

TEST(ClosedForms, ZbvLosesNothingWithoutABarrier) {
  for (int p = 2; p <= 12; ++p)
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1})
      EXPECT_EQ(
          time(*pipeline::zbv({p, 2, m}), {p, 2, m, 60, 60, 60}).bubble_without_barrier().value, 0);
}

TEST(StageSim, FusedBackwardTakesExactlyBoth) {
  const StageCosts costs = {{{3}, {5}}, {{7}, {11}}, {{13}, {17}}, {2}};
  const auto fused_times = simulate_stages(*pipeline::gpipe({2, 1, 1}), costs);
  // F0, hop, F1, B1, hop, B0.
  EXPECT_EQ(fused_times.makespan.value, 3 + 2 + 5 + (11 + 17) + 2 + (7 + 13));
  EXPECT_EQ(fused_times.coords[1][1].start.value, 10);
  EXPECT_EQ(fused_times.coords[1][1].end.value, 38);
  // The gradient leaves after I alone.
  const auto split = Schedule::create({2, 1, 1}, Placement::kLoop,
                                      {{{PassKind::kForward, {0}, {0}},
                                        {PassKind::kInputGrad, {0}, {0}},
                                        {PassKind::kWeightGrad, {0}, {0}}},
                                       {{PassKind::kForward, {1}, {0}},
                                        {PassKind::kInputGrad, {1}, {0}},
                                        {PassKind::kWeightGrad, {1}, {0}}}});
  EXPECT_EQ(simulate_stages(*split, costs).makespan.value, 3 + 2 + 5 + 11 + 2 + (7 + 13));
  EXPECT_EQ(simulate_stages(fuse_backward(*split), costs).makespan, fused_times.makespan);
  EXPECT_EQ(simulate_stages(*split, costs).work.value, 5 + 11 + 17);
}

// For one order, dearer passes and hops never help, and joining I and W never does.
TEST(StageSim, IsMonotone) {
  for (const CatalogRow& row : pipeline::catalog())
    for (int p = 2; p <= 5; ++p)
      for (const int m : {3, 7, 12})
        for (const int v : {1, 2, 3}) {
          const auto made = row.build({p, v, m});
          if (!made.ok()) continue;
          StageCosts costs = even_costs({p, v, m}, {60}, {60}, {60});
          Seconds before = simulate_stages(*made, costs).makespan;
          EXPECT_LE(before, simulate_stages(fuse_backward(*made), costs).makespan);
          for (int round = 0; round < 12; ++round) {
            const auto stage = static_cast<std::size_t>(round * 7 % (p * v));
            auto& times = round % 3 == 0   ? costs.forward
                          : round % 3 == 1 ? costs.input_grad
                                           : costs.weight_grad;
            if (round % 4 == 3)
              costs.hop += {5};
            else
              times[stage] += {13};
            const Seconds after = simulate_stages(*made, costs).makespan;
            EXPECT_LE(before, after) << row.name;
            before = after;
          }
        }
}

// The last unit of a pass carries all its time, so that a receive posted one computation early is
// as early as one pass.
Seconds lowered_makespan(const Schedule& schedule, const StageCosts& costs) {
  const int stages = schedule.shape().stages();
  program::StepShape step;
  step.stage_begin = program::split_units(stages + 2, stages);
  const program::Program program = lower(schedule, step).value();
  const auto cost = [&](Coord, const program::Op& op) -> Seconds {
    if (op.unit < 0 || op.microbatch < 0) return {};
    const auto stage = static_cast<std::size_t>(program.step.stage_of(op.unit).value);
    const bool is_forward = op.kind == program::OpKind::kForward;
    const int last = is_forward ? step.stage_begin[stage + 1] - 1 : step.stage_begin[stage];
    if (op.unit != last) return {};
    if (is_forward) return costs.forward[stage];
    if (op.kind == program::OpKind::kInputGrad) return costs.input_grad[stage];
    if (op.kind == program::OpKind::kWeightGrad) return costs.weight_grad[stage];
    return costs.input_grad[stage] + costs.weight_grad[stage];
  };
  const auto latency = [&](Coord, const program::Op&) { return costs.hop; };
  return simulate(program, cost, {.latency = latency}).value().makespan;
}

// Hops are latency to both, and no longer than a pass: a receive is posted while the pass before it
// runs at the latest. Where costs are far from the nominal times of lowering a sender
// may wait: of this catalogue only interleaved-zb from 8 coordinates on, by at most 2 %.
TEST(StageSim, AgreesWithTheLoweredProgram) {
  int equal = 0, cases = 0;
  for (const CatalogRow& row : pipeline::catalog())
    for (const int p : {2, 3, 4, 8})
      for (const int m : {3, 8, 16})
        for (const int v : {1, 2, 4})
          for (const double hop : {0, 3, 15}) {
            const auto made = row.build({p, v, m});
            if (!made.ok()) continue;
            StageCosts costs = even_costs({p, v, m}, {60}, {72}, {48}, {hop});
            costs.forward[0] += {24};  // stages differ
            const Seconds ideal = simulate_stages(*made, costs).makespan;
            const Seconds lowered = lowered_makespan(*made, costs);
            ++cases;
            equal += ideal == lowered;
            if (row.name == "interleaved-zb" && p == 8 && m == 16)
              EXPECT_TRUE(ideal <= lowered && lowered <= 1.02 * ideal) << v << " " << hop;
            else
              EXPECT_EQ(ideal, lowered) << row.name << " p" << p << " v" << v << " m" << m;
          }
  std::cout << equal << " of " << cases << " programs take exactly as long as their schedules\n";
}

// When each pass may begin, told from the ends of others.
class Begins {
 public:
  Begins(const Schedule& schedule, const StageTimes& times, double hop)
      : schedule_(schedule), hop_(hop) {
    for (int c = 0; c < schedule.shape().coords; ++c)
      for (std::size_t i = 0; i < schedule.passes({c}).size(); ++i) {
        const Pass& pass = schedule.passes({c})[i];
        if (pass.kind != PassKind::kWeightGrad)
          ends_[{pass.stage.value, pass.microbatch.value, pass.kind == PassKind::kForward}] =
              times.coords[static_cast<std::size_t>(c)][i].end.value;
      }
  }

  double of(int c, const Pass& pass) const {
    const bool is_forward = pass.kind == PassKind::kForward;
    const int from = pass.stage.value + (is_forward ? -1 : 1);
    const bool is_end = from < 0 || from == schedule_.shape().stages();
    if (pass.kind == PassKind::kWeightGrad || is_end) return 0;
    const bool hops = coord_of(schedule_.placement(), {from}, schedule_.shape().coords).value != c;
    return ends_.at({from, pass.microbatch.value, is_forward}) + (hops ? hop_ : 0.0);
  }

 private:
  const Schedule& schedule_;
  double hop_;
  std::map<std::tuple<int, int, bool>, double> ends_;  // stage, microbatch, forwards
};

// Every time follows from earlier ones by a sum or a maximum; and what a timeline says of the
// length of passes gives the same timeline.
TEST(StageSim, TimesFollowFromTheRules) {
  for (const CatalogRow& row : pipeline::catalog())
    for (const int p : {2, 5})
      for (const int v : {1, 2, 3}) {
        const auto made = row.build({p, v, 2 * p + 1});
        if (!made.ok()) continue;
        StageCosts costs = even_costs(made->shape(), {60}, {72}, {48}, {7});
        for (std::size_t stage = 0; stage < costs.forward.size(); ++stage)
          costs.forward[stage] += {static_cast<double>(stage * 5 % 7)};
        const StageTimes times = simulate_stages(*made, costs);
        const Begins begins(*made, times, 7);
        StageCosts own = costs;
        for (int c = 0; c < p; ++c) {
          double now = 0;
          for (std::size_t i = 0; i < made->passes({c}).size(); ++i) {
            const Pass& pass = made->passes({c})[i];
            const TimedPass& timed = times.coords[static_cast<std::size_t>(c)][i];
            ASSERT_EQ(timed.start.value, std::max(now, begins.of(c, pass)))
                << row.name << " " << to_text(pass);
            now = timed.end.value;
            const auto stage = static_cast<std::size_t>(pass.stage.value);
            const Seconds length = timed.end - timed.start;
            if (pass.kind == PassKind::kForward) own.forward[stage] = length;
            if (pass.kind == PassKind::kInputGrad) own.input_grad[stage] = length;
            if (pass.kind == PassKind::kWeightGrad) own.weight_grad[stage] = length;
            if (pass.kind == PassKind::kBackward)
              own.input_grad[stage] = length - own.weight_grad[stage];
          }
        }
        EXPECT_EQ(simulate_stages(*made, own).makespan, times.makespan) << row.name;
      }
}

}  // namespace
}  // namespace lockstep::sim
