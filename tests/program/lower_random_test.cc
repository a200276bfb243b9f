// Properties of lowering over random schedules and steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/generators/generators.h"
#include "lockstep/program/deadlock.h"
#include "lockstep/program/lower.h"
#include "lockstep/program/passes/residency.h"
#include "lockstep/program/validate.h"
#include "tests/program/dice.h"
#include "tests/program/replay.h"

namespace lockstep::program {
namespace {

// Any order a pipeline could run in: again and again one of the passes that are ready.
pipeline::Schedule random_schedule(Dice& dice, const pipeline::Shape& shape,
                                   pipeline::Placement placement) {
  struct Done {
    bool f = false, i = false, w = false, split = false;
  };
  const int stages = shape.stages(), m = shape.microbatches;
  std::vector<std::vector<Done>> done(static_cast<std::size_t>(stages),
                                      std::vector<Done>(static_cast<std::size_t>(m)));
  for (auto& row : done)
    for (Done& one : row) one.split = dice.coin();
  std::vector<std::vector<pipeline::Pass>> timetable(static_cast<std::size_t>(shape.coords));
  const auto at = [&](int s, int mb) -> Done& {
    return done[static_cast<std::size_t>(s)][static_cast<std::size_t>(mb)];
  };
  while (true) {
    std::vector<pipeline::Pass> ready;
    for (int s = 0; s < stages; ++s)
      for (int mb = 0; mb < m; ++mb) {
        Done& one = at(s, mb);
        if (!one.f && (s == 0 || at(s - 1, mb).f))
          ready.push_back({pipeline::PassKind::kForward, {s}, {mb}});
        const bool turn_i =
            one.f && !one.i && (mb == 0 || at(s, mb - 1).i) && (s + 1 == stages || at(s + 1, mb).i);
        const bool turn_w = !one.w && (mb == 0 || at(s, mb - 1).w);
        if (turn_i && one.split) ready.push_back({pipeline::PassKind::kInputGrad, {s}, {mb}});
        if (turn_i && turn_w && !one.split)
          ready.push_back({pipeline::PassKind::kBackward, {s}, {mb}});
        if (one.i && turn_w && one.split)
          ready.push_back({pipeline::PassKind::kWeightGrad, {s}, {mb}});
      }
    if (ready.empty()) break;
    const pipeline::Pass pass =
        ready[static_cast<std::size_t>(dice.between(0, static_cast<int>(ready.size()) - 1))];
    Done& one = at(pass.stage.value, pass.microbatch.value);
    if (pass.kind == pipeline::PassKind::kForward) one.f = true;
    if (pass.kind == pipeline::PassKind::kInputGrad || pass.kind == pipeline::PassKind::kBackward)
      one.i = true;
    if (pass.kind == pipeline::PassKind::kWeightGrad || pass.kind == pipeline::PassKind::kBackward)
      one.w = true;
    const Coord coord = pipeline::coord_of(placement, pass.stage, shape.coords);
    timetable[static_cast<std::size_t>(coord.value)].push_back(pass);
  }
  const auto made = pipeline::Schedule::create(shape, placement, std::move(timetable));
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

StepShape random_step(Dice& dice, const pipeline::Shape& shape, pipeline::Placement placement) {
  StepShape step = {.shape = shape, .placement = placement};
  const int units = std::max(2, shape.stages()) + dice.between(0, 6);
  std::set<std::int32_t> cuts = {0, units};
  while (cuts.size() <= static_cast<std::size_t>(shape.stages()))
    cuts.insert(dice.between(1, units - 1));
  step.stage_begin.assign(cuts.begin(), cuts.end());
  step.zero = dice.between(0, 3);
  step.period = dice.coin() ? Period::kStep : Period::kMicrobatch;
  step.replicas = dice.coin();
  step.tied = dice.coin();
  step.noise = !step.tied && dice.coin();
  if (dice.coin())
    for (int unit = 0; unit < units; ++unit)
      step.recompute.push_back(unit > 0 && unit < units - 1 && dice.coin());
  step.resident_units = dice.between(1, 4);
  step.prefetch = dice.between(0, 4);
  step.tensor_parallel = dice.coin();
  if (step.tensor_parallel && dice.coin())
    for (int unit = 0; unit < units; ++unit) step.partial.push_back(dice.coin());
  if (dice.coin())
    for (int unit = 0; unit < units; ++unit)
      step.experts.push_back(unit > 0 && unit < units - 1 && dice.coin());
  return step;
}

std::string describe(const StepShape& step) {
  std::string text =
      "p" + std::to_string(step.shape.coords) + " v" + std::to_string(step.shape.chunks) + " m" +
      std::to_string(step.shape.microbatches) + " zero" + std::to_string(step.zero) + " resident" +
      std::to_string(step.resident_units) + " prefetch" + std::to_string(step.prefetch) + " stages";
  for (const std::int32_t unit : step.stage_begin) text += " " + std::to_string(unit);
  return text;
}

// Fewest misses of a cache that must hold what is used, by trying every victim at every miss.
int fewest_misses(const std::vector<std::int32_t>& uses, std::size_t from,
                  const std::set<std::int32_t>& kept, std::size_t capacity) {
  while (from < uses.size() && kept.contains(uses[from])) ++from;
  if (from == uses.size()) return 0;
  std::set<std::int32_t> next = kept;
  next.insert(uses[from]);
  if (kept.size() < capacity) return 1 + fewest_misses(uses, from + 1, next, capacity);
  int fewest = static_cast<int>(uses.size());
  for (const std::int32_t victim : kept) {
    std::set<std::int32_t> left = next;
    left.erase(victim);
    fewest = std::min(fewest, 1 + fewest_misses(uses, from + 1, left, capacity));
  }
  return fewest;
}

TEST(Residency, TakesTheFewestGathers) {
  Dice dice(31);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int32_t> uses;
    for (int i = dice.between(0, 12), units = dice.between(1, 5); i > 0; --i)
      uses.push_back(dice.between(0, units - 1));
    const int capacity = dice.between(1, 4);
    const auto stays = farthest_next_use(uses, capacity);
    ASSERT_EQ(static_cast<int>(stays.size()),
              fewest_misses(uses, 0, {}, static_cast<std::size_t>(capacity)));
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const auto now = static_cast<std::int32_t>(i);
      const auto covers = [&](const Stay& s) { return s.first <= now && now <= s.last; };
      ASSERT_LE(std::ranges::count_if(stays, covers), capacity);
      ASSERT_EQ(std::ranges::count_if(
                    stays, [&](const Stay& s) { return covers(s) && s.unit == uses[i]; }),
                1);
    }
  }
}

// Everything that must hold of one program on its own effects.
void expect_sound(const Program& program) {
  const StepShape& step = program.step;
  const std::vector<Problem> problems = validate(program);
  ASSERT_TRUE(problems.empty()) << to_text(problems.front());
  const Result<void> ends = check_deadlock(program, Transport::kFifoPerDirection);
  ASSERT_TRUE(ends.ok()) << ends.error().message;
  ASSERT_TRUE(std::ranges::is_sorted(program.transfers, {}, [](const Transfer& t) {
    return std::tuple(t.is_grad, t.unit, t.microbatch);
  }));
  for (int coord = 0; coord < step.shape.coords; ++coord) {
    const Replay replay = Replayer(program, {coord}).run();
    ASSERT_EQ(replay.fault, "") << "pipeline rank " << coord << "\n"
                                << to_lines(program.list({coord}));
    ASSERT_LE(replay.most_reducing, 1);
    ASSERT_LE(replay.most_replicated, 1);
    ASSERT_LE(replay.most_sending, 1);
    ASSERT_LE(static_cast<int>(replay.most_gathered), step.resident_units + step.prefetch);
    std::vector<std::int32_t> uses;
    for (const Op& op : program.list({coord}))
      for (const Value& value : effects(program, {coord}, op).reads)
        if (value.kind == ValueKind::kParam && value.a < step.units()) uses.push_back(value.a);
    const auto stays = farthest_next_use(uses, step.resident_units);
    const auto has_experts = [&](const Stay& stay) { return step.has_experts(stay.unit); };
    ASSERT_EQ(replay.gathers, step.zero == 3 ? static_cast<int>(stays.size()) : 0);
    ASSERT_EQ(replay.expert_gathers,
              step.zero == 3 ? std::ranges::count_if(stays, has_experts) : 0);
  }
  const auto posted = channel_orders(program, OpKind::kPostRecv);
  ASSERT_EQ(channel_orders(program, OpKind::kSend), posted);
  std::size_t num_posted = 0;
  for (const auto& [channel, transfers] : posted) num_posted += transfers.size();
  ASSERT_EQ(num_posted, program.transfers.size());
}

// Where ops stand, beyond what effects ask for.
void expect_placed(const Program& program) {
  for (const auto& list : program.lists) {
    int num_computed = 0;
    std::vector<int> posted(program.transfers.size());
    Op last;  // compute op
    for (std::size_t at = 0; at < list.size(); ++at) {
      const Op& op = list[at];
      if (is_compute(op.kind)) {
        if (last.kind == OpKind::kRecompute) {
          ASSERT_TRUE(op.unit == last.unit && op.microbatch == last.microbatch);
        }
        ++num_computed;
        last = op;
      }
      if (op.kind == OpKind::kPostRecv)
        posted[static_cast<std::size_t>(op.transfer)] = num_computed;
      if (op.kind == OpKind::kSend) {
        ASSERT_TRUE(is_compute(list[at - 1].kind) || is_compute(list[at - 2].kind));
      }
      if (op.kind != OpKind::kWait) continue;
      const Op& target = list[static_cast<std::size_t>(op.target)];
      if (target.kind == OpKind::kPostRecv) {  // a compute op early, unless there is none
        ASSERT_LE(posted[static_cast<std::size_t>(target.transfer)], std::max(0, num_computed - 1));
      }
    }
  }
}

TEST(Lower, EveryScheduleIsSoundAndNeverStuck) {
  Dice dice(41);
  for (int round = 0; round < 300; ++round) {
    const pipeline::Shape shape = {dice.between(1, 4), dice.between(1, 2), dice.between(1, 5)};
    const pipeline::Placement placement =
        dice.coin() ? pipeline::Placement::kLoop : pipeline::Placement::kV;
    const pipeline::Schedule schedule = random_schedule(dice, shape, placement);
    const StepShape step = random_step(dice, shape, placement);
    SCOPED_TRACE(describe(step) + "\n" + to_text(schedule));
    const auto program = lower(schedule, step);
    ASSERT_TRUE(program.ok()) << program.error().message;
    ASSERT_NO_FATAL_FAILURE(expect_sound(*program));
    ASSERT_NO_FATAL_FAILURE(expect_placed(*program));
    ASSERT_EQ(stuck_at(*program), "");
    const auto evaluation = lower_forward_only(step);
    ASSERT_TRUE(evaluation.ok());
    ASSERT_NO_FATAL_FAILURE(expect_sound(*evaluation));
    ASSERT_EQ(stuck_at(*evaluation), "");
  }
}

// The first coordinate runs all forward passes while the second alternates. Posted one computation
// early, gradients would wait for the end of the forward passes, and those for gradients.
TEST(Lower, SendersThatRunAheadDoNotLockUp) {
  const pipeline::Shape shape = {2, 1, 10};
  const auto ahead = pipeline::gpipe(shape), alternating = pipeline::one_f_one_b(shape);
  std::vector<std::vector<pipeline::Pass>> timetable(2);
  timetable[0].assign(ahead->passes({0}).begin(), ahead->passes({0}).end());
  timetable[1].assign(alternating->passes({1}).begin(), alternating->passes({1}).end());
  const auto schedule = pipeline::Schedule::create(shape, pipeline::Placement::kLoop, timetable);
  ASSERT_TRUE(schedule.ok());
  const auto program = lower(*schedule, {.stage_begin = split_units(6, 2)});
  ASSERT_NO_FATAL_FAILURE(expect_sound(*program));
  EXPECT_EQ(stuck_at(*program), "");
}

TEST(Lower, NamedSchedulesAreSoundAndNeverStuck) {
  Dice dice(43);
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    for (int p = 1; p <= 6; ++p)
      for (const int m : {1, 2, 5, 12})
        for (const int v : {1, 2}) {
          const pipeline::Shape shape = {p, v, m};
          const auto schedule = row.build(shape);
          if (!schedule.ok()) continue;
          const StepShape step = random_step(dice, shape, schedule->placement());
          SCOPED_TRACE(std::string(row.name) + " " + describe(step));
          const auto program = lower(*schedule, step);
          ASSERT_TRUE(program.ok());
          ASSERT_NO_FATAL_FAILURE(expect_sound(*program));
          ASSERT_NO_FATAL_FAILURE(expect_placed(*program));
          ASSERT_EQ(stuck_at(*program), "");
        }
}

}  // namespace
}  // namespace lockstep::program
