// What f32 promises: within a class of layouts (tensor and data degree, microbatch size, reduction)
// every bit of loss, norm, parameters and moments is the same.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/launch/spawn.h"
#include "lockstep/plan/layout_space.h"
#include "lockstep/train/trial.h"
#include "tests/train/split.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

constexpr int kSteps = 3;

std::string bits_of(const Job& job, std::uint64_t seed = 0) {
  std::vector<StepOrder> orders;
  for (int step = 0; step < kSteps; ++step) orders.push_back({step, nullptr});
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  const TrialResult trial = run_trial(job, tokens, orders, Seconds{60}, {seed});
  EXPECT_EQ(trial.disagreement, "") << to_text(job.spec.layout);
  return bits_of(trial.images);
}

std::string bits_on_threads(const std::string& layout, std::uint64_t seed = 0) {
  return bits_of(job_of(tiny_spec(true, DType::kF32), layout), seed);
}

struct Class {
  std::int64_t tp;
  bool sp;
  std::int64_t dp;
  plan::Period reduce;
  std::string name() const {
    return "tp" + std::to_string(tp) + (sp ? " dp" : " nosp dp") + std::to_string(dp) + " " +
           std::string(plan::name_of(reduce));
  }
};

std::vector<Class> all_classes() {
  std::vector<Class> all;
  for (const plan::Period reduce : {plan::Period::kStep, plan::Period::kMicrobatch}) {
    for (const std::int64_t dp : {1, 2, 4}) all.push_back({1, true, dp, reduce});
    for (const std::int64_t dp : {1, 2}) all.push_back({2, true, dp, reduce});
    all.push_back({2, false, 2, reduce});
  }
  return all;
}

// Layouts of one class on tp dp, 2 tp dp and 4 tp dp ranks, pairs of all other settings covered, two
// sequences in a microbatch; and settings of ZeRO-3 that the space of layouts does not vary.
std::vector<std::string> members(const Class& of) {
  const plan::Spec spec = tiny_spec(true, DType::kF32);
  const std::int64_t dp = of.dp;
  std::vector<plan::Layout> all;
  for (std::int64_t pp : {1, 2, 4})
    for (const plan::Layout& layout :
         plan::layouts(spec.model, of.tp * dp * pp, spec.batch, DType::kF32))
      if (layout.degrees.tp == of.tp && layout.sp == of.sp && layout.degrees.dp == dp &&
          layout.microbatches == 2 && layout.reduce == of.reduce)
        all.push_back(layout);
  std::vector<std::string> names;
  for (plan::Layout layout : plan::covering_array(all, 2)) {
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
      first_losses[of.tp].insert(bits.substr(0, bits.find(' ')));
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
  EXPECT_EQ(different.size(), 6u) << "different classes add in different orders";
  std::printf("%d layouts in %zu classes\n", layouts, classes.size());
}

// Where W gathers rows again that I had gathered before, they are the same rows.
TEST(Bits, OfBackwardInOneAndInTwoAreTheSame) {
  for (const char* layout : {"pp2 dp1 zero1 1f1b m4 step", "tp2 pp2 dp1 zero1 1f1b m4 step",
                             "tp2 pp2 dp1 zero1 nosp 1f1b m4 step"}) {
    Job job = job_of(tiny_spec(true, DType::kF32), layout);
    const std::string whole = bits_of(job);
    job.program = split(job.program);
    EXPECT_EQ(bits_of(job), whole) << layout;
  }
}

TEST(Bits, SameAgainAndInAnyOrderOfDelivery) {
  for (const char* layout :
       {"pp2 dp2x2 zero3 1f1b m2 mb recompute=cheap", "tp2 pp2 dp2 zero3 1f1b m2 mb"}) {
    const std::string bits = bits_on_threads(layout);
    EXPECT_EQ(bits_on_threads(layout), bits);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) EXPECT_EQ(bits_on_threads(layout, seed), bits);
  }
}

// Rank 0's output of one process per rank.
std::string bits_on_processes(const std::string& layout, int ranks) {
  const std::string prefix = std::filesystem::temp_directory_path() /
                             ("lockstep_train_test." + std::to_string(::getpid()) + ".");
  auto processes = launch::RankProcesses::start({std::string(LOCKSTEP_WORKER_DIR) + "/train_worker",
                                                 {layout, std::to_string(kSteps)},
                                                 ranks,
                                                 {},
                                                 prefix});
  EXPECT_TRUE(processes.ok());
  std::string text;
  for (int r = 0; r < ranks; ++r) {
    const auto ending = processes->wait(Rank{r}, Deadline::after(Seconds{120}));
    EXPECT_TRUE(ending && ending->ok()) << "rank " << r << " of " << layout;
    std::stringstream printed;
    printed << std::ifstream(prefix + std::to_string(r)).rdbuf();
    if (r == 0) text = printed.str();
    std::filesystem::remove(prefix + std::to_string(r));
  }
  return text;
}

TEST(BitsSlow, ProcessesOverGlooHaveThoseOfThreads) {
  for (const auto& [layout, ranks] :
       {std::pair("dp2 zero1 m2", 2), std::pair("pp2 dp1 zero0 m2", 2),
        std::pair("pp2 dp2 zero3 m2", 4), std::pair("tp2 pp2 dp1 zero1 m2", 4),
        std::pair("tp2 dp1 zero0 nosp m2", 2)}) {
    const std::string bits = bits_on_threads(layout);
    EXPECT_EQ(std::ranges::count(bits, '\n'), kSteps);
    EXPECT_EQ(bits_on_processes(layout, ranks), bits) << layout;
  }
}

}  // namespace
}  // namespace lockstep::train
