// What f32 promises: within a class of layouts (tensor, context and data degree, microbatch size,
// reduction)
// every bit of loss, norm, parameters and moments is the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "lockstep/base/check.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/program/lower.h"
#include "lockstep/spec/layout_space.h"
#include "lockstep/spec/legal.h"
#include "lockstep/verify/trial.h"
#include "tests/support/fuse.h"
#include "tests/support/lateness.h"
#include "tests/support/starvation.h"
#include "tests/train/families.h"

namespace lockstep::train {
namespace {

constexpr int kSteps = 3;

std::string bits_on_threads(const Job& job, const comm::LocalOptions& world = {}) {
  std::vector<verify::StepOrder> orders;
  for (int step = 0; step < kSteps; ++step) orders.push_back({step, nullptr});
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  const verify::TrialResult trial =
      verify::run_trial(job, tokens, orders, Seconds{60}, {.world = world});
  EXPECT_EQ(trial.disagreement, "") << to_text(job.spec.layout);
  return bits_of(trial.images);
}

std::string bits_on_threads(const std::string& layout, std::uint64_t seed = 0) {
  return bits_on_threads(job_of(tiny_spec(true, DType::kF32), layout), {seed});
}

// What tensor ranks compute beside their collectives is what they compute behind them.
TEST(Bits, AreTheSameWithoutOverlapOfTensorCollectives) {
  for (const char* layout : {"tp2 dp1 zero1 m4", "tp2 nosp dp1 zero0 m4"}) {
    spec::Spec spec = tiny_spec(true, DType::kF32);
    spec.train.tp_overlap = false;
    const Job job = job_of(spec, layout);
    ASSERT_FALSE(job.workspace.unit.tp_overlap);
    EXPECT_EQ(bits_on_threads(job), bits_on_threads(layout)) << layout;
  }
}

struct Class {
  std::int64_t tp;
  bool sp;
  std::int64_t dp;
  spec::Period reduce;
  std::int64_t cp = 1;
  model::CpMethod context = model::kCpMethods[0];
  std::string name() const {
    return (cp > 1 ? join_parts("cp", cp, " ", to_text(context), " ") : "") + "tp" +
           std::to_string(tp) + (sp ? " dp" : " nosp dp") + std::to_string(dp) + " " +
           std::string(spec::name_of(reduce));
  }
};

std::vector<Class> all_classes() {
  std::vector<Class> all;
  for (const spec::Period reduce : {spec::Period::kStep, spec::Period::kMicrobatch}) {
    for (const std::int64_t dp : {1, 2, 4}) all.push_back({1, true, dp, reduce});
    for (const std::int64_t dp : {1, 2}) all.push_back({2, true, dp, reduce});
    all.push_back({2, false, 2, reduce});
  }
  all.push_back({1, true, 1, spec::Period::kStep, 2, model::CpMethod::kRing});
  all.push_back({1, true, 2, spec::Period::kStep, 2, model::CpMethod::kGather});
  all.push_back({2, true, 1, spec::Period::kStep, 2, model::CpMethod::kRing});
  all.push_back({1, true, 1, spec::Period::kStep, 2, model::CpMethod::kUlysses});
  return all;
}

// Layouts of one class on tp cp dp, 2 tp cp dp and 4 tp cp dp ranks, pairs of all other settings
// covered, two sequences in a microbatch; and settings of ZeRO-3 that the space of layouts does not
// vary.
std::vector<std::string> members(const Class& of) {
  const spec::Spec spec = tiny_spec(true, DType::kF32);
  const std::int64_t dp = of.dp;
  std::vector<spec::Layout> all;
  for (std::int64_t pp : {1, 2, 4})
    for (const spec::Layout& layout :
         spec::layouts(spec.model, of.tp * of.cp * dp * pp, spec.batch, DType::kF32))
      if (layout.degrees.tp == of.tp && layout.sp == of.sp && layout.degrees.dp == dp &&
          layout.degrees.cp == of.cp && layout.context == of.context && layout.microbatches == 2 &&
          layout.reduce == of.reduce)
        all.push_back(layout);
  std::vector<std::string> names;
  for (spec::Layout layout : spec::covering_array(all, 2).layouts) {
    layout.microbatches = spec.batch.global_batch / dp / 2;
    names.push_back(to_text(layout));
    if (layout.zero != 3) continue;
    layout.resident = 1 + static_cast<int>(names.size()) % 4;
    layout.prefetch = static_cast<int>(names.size()) % 3;
    names.push_back(to_text(layout));
  }
  return names;
}

TEST(BitsSlow, AreThoseOfTheClassAndOfNoOther) {
  std::map<std::string, std::string> classes;
  std::map<std::int64_t, std::set<std::string>> first_losses;  // by tensor degree
  int layouts = 0;
  for (const Class& of : all_classes())
    for (const std::string& layout : members(of)) {
      const std::string bits = bits_on_threads(layout);
      if (of.cp == 1) first_losses[of.tp].insert(bits.substr(0, bits.find(' ')));
      const auto [first, is_new] = classes.try_emplace(of.name(), bits);
      EXPECT_EQ(first->second, bits) << layout << " in class " << of.name();
      ++layouts;
    }
  // Before any sum over data ranks there is one loss for each way to cut a matrix product.
  EXPECT_EQ(first_losses[1].size(), 1u);
  EXPECT_EQ(first_losses[2].size(), 1u);
  std::set<std::string> different;
  for (const auto& [name, bits] : classes)
    if (name.ends_with("step")) different.insert(bits);
  EXPECT_EQ(different.size(), 10u) << "different classes add in different orders";
  std::printf("%d layouts in %zu classes\n", layouts, classes.size());
}

// Where W gathers rows again that I had gathered before, they are the same rows.
TEST(Bits, OfBackwardInOneAndInTwoAreTheSame) {
  for (const std::string ranks : {"pp2 dp1", "tp2 pp2 dp1", "tp2 pp2 dp1 nosp"})
    EXPECT_EQ(bits_on_threads(ranks + " zero1 zb-h1 m4 step"),
              bits_on_threads(ranks + " zero1 1f1b m4 step"))
        << ranks;
}

TEST(Bits, SameAgainAndInAnyOrderOfDelivery) {
  for (const char* layout : {"pp2 dp2x2 zero3 1f1b m2 mb recompute=selective",
                             "tp2 pp2 dp2 zero3 1f1b m2 mb", "cp4 pp2 dp1 zero3 1f1b m2 mb"}) {
    const std::string bits = bits_on_threads(layout);
    EXPECT_EQ(bits_on_threads(layout), bits);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) EXPECT_EQ(bits_on_threads(layout, seed), bits);
  }
}

// Layers for two stages on each of four coordinates, and one over; a batch that 2, 3 and 8
// microbatches cut.
spec::Spec deep_spec() {
  spec::Spec spec = tiny_spec(true, DType::kF32);
  spec.model.layers = 9;
  spec.batch.global_batch = 24;
  return spec;
}

using pipeline::Pass;
using pipeline::PassKind;
using pipeline::Schedule;

// Every B as I and W.
Schedule in_halves(const Schedule& whole, bool puts_off) {
  std::vector<std::vector<Pass>> timetable;
  for (std::int32_t coord = 0; coord < whole.shape().coords; ++coord) {
    std::vector<Pass>& passes = timetable.emplace_back();
    for (const Pass& pass : whole.passes({coord})) {
      passes.push_back(pass);
      if (pass.kind != PassKind::kBackward) continue;
      passes.back().kind = PassKind::kInputGrad;
      passes.push_back({PassKind::kWeightGrad, pass.stage, pass.microbatch});
    }
    if (puts_off)
      std::ranges::stable_partition(
          passes, [](const Pass& pass) { return pass.kind != PassKind::kWeightGrad; });
  }
  return Schedule::create(whole.shape(), whole.placement(), timetable).value();
}

// Other backward passes of the same schedule: all in halves; whole wherever I and its W stand side
// by side; in halves with every W at the end, which no refilling puts off further.
constexpr std::array<Schedule (*)(const Schedule&), 3> kOtherHalves = {
    [](const Schedule& usual) { return in_halves(usual, false); },
    [](const Schedule& usual) { return fuse_backward(usual); },
    [](const Schedule& usual) { return in_halves(usual, true); }};

int from_environment(const char* name, int usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::atoi(text);
}

// The first block of every second stage, and the others selectively.
spec::Recompute every_second_stage(std::int64_t stages) {
  spec::Recompute made{model::kSelective};
  made.drop.block = true;
  for (std::int64_t i = 0; i < stages; ++i) made.blocks.push_back(i % 2 == 0 ? 1 : 0);
  return made;
}

// One rank per coordinate, every schedule and number of chunks that nine layers allow; the other
// settings in turn.
std::vector<spec::Layout> schedules(std::int64_t pp, std::int64_t m) {
  std::vector<spec::Layout> all;
  for (const std::string& name : spec::schedule_names())
    for (const int chunks : {1, 2, 3}) {
      const auto n = static_cast<int>(all.size());
      spec::Layout layout{.degrees = {.pp = pp}, .zero = n % 4, .schedule = name, .chunks = chunks};
      layout.microbatches = m;
      layout.recompute = n % 4 == 0   ? spec::Recompute{}
                         : n % 4 == 1 ? spec::Recompute{model::kWholeBlock}
                         : n % 4 == 2 ? spec::Recompute{model::kSelective}
                                      : every_second_stage(pp * chunks);
      const spec::Spec spec = deep_spec();
      if (spec::legal(spec.model, layout, cut(spec.batch, layout), DType::kF32).empty())
        all.push_back(layout);
    }
  return all;
}

// LOCKSTEP_ALL_SCHEDULES=1 tries all that a sample stands for.
TEST(BitsSlow, AreThoseOfEveryScheduleWithItsBackwardPassWholeOrInHalves) {
  const bool all = from_environment("LOCKSTEP_ALL_SCHEDULES", 0) != 0;
  int seen = 0, runs = 0;
  std::set<std::string> names;
  for (const std::int64_t m : {2, 3, 8}) {
    const std::string bits =
        bits_on_threads(job_of(deep_spec(), join_parts("dp1 zero0 m", m, " step")));
    for (const std::int64_t pp : {1, 2, 4, 8})
      for (const spec::Layout& layout : schedules(pp, m)) {
        Job job = job_of(deep_spec(), to_text(layout));
        const Schedule usual = *pipeline::find(layout.schedule)->build(job.program.step.shape);
        std::vector<Schedule> different = {usual};
        for (const auto& made : kOtherHalves)
          if (std::ranges::find(different, made(usual)) == different.end())
            different.push_back(made(usual));
        for (const Schedule& order : different) {
          if (!all && (++seen % 7 != 0 || pp == 1)) continue;
          job.program = program::lower(order, job.program.step).value();
          EXPECT_EQ(bits_on_threads(job), bits) << to_text(layout) << "\n" << to_text(order);
          names.insert(layout.schedule);
          ++runs;
        }
      }
  }
  EXPECT_EQ(names.size(), pipeline::catalog().size());
  std::printf("%d timetables\n", runs);
}

// Seed i delays what the i-th layout sends, in turn. LOCKSTEP_DELIVERY_SEEDS=1000 tries that many;
// LOCKSTEP_FIRST_SEED replays from one.
void expect_bits_in_any_order(const spec::Spec& spec, const std::vector<std::string>& layouts) {
  const int seeds = from_environment("LOCKSTEP_DELIVERY_SEEDS", static_cast<int>(layouts.size()));
  const int first = from_environment("LOCKSTEP_FIRST_SEED", 1);
  std::map<std::size_t, std::string> bits;
  for (int seed = first; seed < first + seeds; ++seed) {
    const std::size_t at = static_cast<std::size_t>(seed) % layouts.size();
    const Job job = job_of(spec, layouts[at]);
    if (!bits.contains(at)) bits[at] = bits_on_threads(job);
    const auto number = static_cast<std::uint64_t>(seed);
    EXPECT_EQ(bits_on_threads(job, {number, comm::seeded_lateness(number, Seconds{0.002})}),
              bits[at])
        << layouts[at] << ", LOCKSTEP_FIRST_SEED=" << seed;
  }
}

TEST(BitsSlow, AreThoseOfEveryOrderOfDelivery) {
  expect_bits_in_any_order(
      deep_spec(),
      {"pp2 dp1 zero0 1f1b m3 step", "pp4 dp1 zero3 gpipe m2 mb",
       "pp4 dp1 zero1 eager-1f1b m8 step", "pp2 dp2x1 zero3 interleaved vpp3 m4 mb",
       "pp4 dp1 zero2 looped-bfs vpp2 m3 step", "pp4 dp1 zero0 zb-h1 m8 step recompute=full",
       "pp2 dp2 zero3 interleaved-zb vpp2 m4 mb", "pp4 dp1 zero1 zbv vpp2 m3 step",
       "pp2 dp2 zero2 v-half vpp2 m4 mb recompute=selective", "pp4 dp1 zero3 v-min vpp2 m8 step",
       "pp2 dp2 zero3 dualpipe-v vpp2 m4 step"});
}

TEST(BitsSlow, OfSharedSequencesAreThoseOfEveryOrderOfDelivery) {
  expect_bits_in_any_order(
      deep_spec(), {"cp4 dp1 zero3 m3 step", "cp2 tp2 dp1 zero1 m2 step recompute=selective",
                    "cp2 dp2 zero2 m2 mb cp_comm_type=gather",
                    "cp2 pp2 dp1 zero2 zbv vpp2 m4 mb cp_comm_type=gather recompute=full",
                    "cp2 dp1 zero0 m2 step cp_comm_type=ulysses"});
}

TEST(BitsSlow, OfSharedExpertsAreThoseOfEveryOrderOfDelivery) {
  spec::Spec spec = mixtral_spec();
  spec.train.dtype = DType::kF32;
  spec.model.moe.experts = 8;
  spec.model.layers = 9;
  spec.batch.global_batch = 24;
  expect_bits_in_any_order(
      spec, {"dp4 ep4 zero3 m3 step", "dp2 ep2 zero0 m4 mb recompute=full",
             "pp2 dp2 ep2 zero2 zbv vpp2 m4 mb", "pp2 dp2 ep2 zero1 dualpipe-v vpp2 m4 step",
             "cp2 dp2 ep4 zero1 m3 step", "cp2 dp1 ep2 zero3 m2 mb cp_comm_type=gather",
             "tp2 etp2 dp2 ep2 zero2 m3 step recompute=selective", "dp2x2 ep2 zero3 m2 mb",
             "tp2 dp2 ep4 zero3 m3 step", "tp2 dp2 ep2 zero1 m2 mb recompute=full"});
}

// A job of one process per rank.
class Processes {
 public:
  Processes(const std::string& layout, int ranks, std::vector<std::string> more = {})
      : ranks_(ranks),
        prefix_(std::filesystem::temp_directory_path() /
                ("lockstep_train_test." + std::to_string(::getpid()) + ".")) {
    more.insert(more.begin(), {layout, std::to_string(kSteps)});
    auto started = launch::RankProcesses::start(
        {std::string(LOCKSTEP_WORKER_DIR) + "/train_worker", more, ranks, {}, prefix_});
    LS_CHECK(started.ok(), "no processes");
    processes_.emplace(std::move(*started));
  }
  ~Processes() {
    processes_.reset();
    for (int r = 0; r < ranks_; ++r) std::filesystem::remove(prefix_ + std::to_string(r));
  }

  // Its exit code, -1 when it hangs or was killed.
  int wait(int rank) {
    const auto ending = processes_->wait(Rank{rank}, Deadline::after(Seconds{120}));
    return ending ? ending->exit_code.value_or(-1) : -1;
  }
  std::string printed(int rank) const {
    std::stringstream text;
    text << std::ifstream(prefix_ + std::to_string(rank)).rdbuf();
    return text.str();
  }

 private:
  int ranks_;
  std::string prefix_;
  std::optional<launch::RankProcesses> processes_;
};

std::string bits_on_processes(const std::string& layout, int ranks,
                              std::vector<std::string> more = {}) {
  Processes processes(layout, ranks, std::move(more));
  for (int r = 0; r < ranks; ++r)
    EXPECT_EQ(processes.wait(r), 0) << "rank " << r << " of " << layout;
  return processes.printed(0);
}

TEST(BitsSlow, ProcessesOverGlooHaveThoseOfThreads) {
  for (const auto& [layout, ranks] :
       {std::pair("dp2 zero1 m2", 2), std::pair("pp2 dp1 zero0 m2", 2),
        std::pair("pp2 dp2 zero3 m2", 4), std::pair("tp2 pp2 dp1 zero1 m2", 4),
        std::pair("tp2 dp1 zero0 nosp m2", 2), std::pair("cp2 dp1 zero2 m2", 2),
        std::pair("cp2 dp2 zero3 m2 cp_comm_type=gather", 4),
        std::pair("pp2 dp1 zero1 zbv vpp2 m4", 2)}) {
    const std::string bits = bits_on_threads(layout);
    EXPECT_EQ(std::ranges::count(bits, '\n'), kSteps);
    EXPECT_EQ(bits_on_processes(layout, ranks), bits) << layout;
  }
}

// LOCKSTEP_PROCESS_SEEDS=50 tries that many.
TEST(BitsSlow, ProcessesHaveThemWhoeverIsLate) {
  const std::pair<const char*, int> tried[] = {{"pp2 dp2 zero3 interleaved-zb vpp2 m4 mb", 4},
                                               {"pp2 dp1 zero2 dualpipe-v vpp2 m4 step", 2},
                                               {"pp2 dp1 zero0 zb-h1 m8 step", 2},
                                               {"pp2 dp1 zero3 looped-bfs vpp2 m4 mb", 2}};
  const int seeds = from_environment("LOCKSTEP_PROCESS_SEEDS", 2);
  for (int seed = 0; seed < seeds; ++seed) {
    const auto& [layout, ranks] = tried[static_cast<std::size_t>(seed) % std::size(tried)];
    EXPECT_EQ(bits_on_processes(layout, ranks, {"late", std::to_string(seed)}),
              bits_on_threads(layout))
        << layout << ", seed " << seed;
  }
}

struct Stop {
  const char* layout;
  int ranks, rank;
  const char* op;
  const char* words;
};

// What a rank tells that is not what it should; nothing, if all of them have it right.
std::string wrong_of_stop(const Stop& stop) {
  Processes processes(stop.layout, stop.ranks, {"stop", std::to_string(stop.rank), stop.op});
  std::string wrong;
  for (int r = 0; r < stop.ranks; ++r) {
    if (r == stop.rank) continue;
    const int code = processes.wait(r);
    const std::string told = processes.printed(r);
    const bool is_right =
        code == 4 && told.starts_with(join_parts("culprit ", stop.rank, "\n")) &&
        told.find(join_parts("rank ", stop.rank, " shows no sign of life, last at ", stop.words)) !=
            std::string::npos;
    if (!is_right) wrong = join_parts(stop.layout, ", rank ", r, ", code ", code, ": ", told);
  }
  return wrong;
}

// A process is stopped in the middle of an op; every other one tells which, and how it waits for
// it.
TEST(BitsSlow, AStoppedProcessIsNamedWithItsOp) {
  for (const Stop& stop :
       {Stop{"pp2 dp1 zero0 1f1b m4 step", 2, 1, "B5.2", "B of unit 5, microbatch 2"},
        Stop{"pp2 dp2 zero3 zbv vpp2 m4 mb", 4, 3, "W3.1", "W of unit 3, microbatch 1"},
        Stop{"dp2 zero1 m2 step", 2, 1, "update3", "update of unit 3"},
        Stop{"tp2 dp1 zero1 m2 step", 2, 1, "F2.1:9",
             "the reduce_scatter of middle in F of unit 2, microbatch 1"},
        Stop{"tp2 nosp pp2 dp1 zero1 1f1b m4 step", 4, 2, "B4.2:6",
             "the all_reduce of d_mlp_normed in B of unit 4, microbatch 2"}})
    EXPECT_EQ(wrong_unless_starved(3, Seconds{0.2}, [&](int) { return wrong_of_stop(stop); }), "");
}

}  // namespace
}  // namespace lockstep::train
