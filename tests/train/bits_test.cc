// What f32 promises: within a class of layouts (data degree, microbatch size, reduction period)
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
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

constexpr int kSteps = 3;

std::string bits_on_threads(const std::string& layout, std::uint64_t seed = 0) {
  const Job job = job_of(tiny_spec(true, DType::kF32), layout);
  std::vector<StepOrder> orders;
  for (int step = 0; step < kSteps; ++step) orders.push_back({step, nullptr});
  const data::MockTokens tokens(1, job.model.config.vocab, true);
  const TrialResult trial = run_trial(job, tokens, orders, Seconds{60}, {seed});
  EXPECT_EQ(trial.disagreement, "") << layout;
  return bits_of(trial.images);
}

// Layouts of one class on dp, 2 dp and 4 dp ranks, pairs of all other settings covered, two sequences
// in a microbatch; and settings of ZeRO-3 that the space of layouts does not vary.
std::vector<std::string> members(std::int64_t dp, plan::Period reduce) {
  const plan::Spec spec = tiny_spec(true, DType::kF32);
  std::vector<plan::Layout> all;
  for (std::int64_t pp : {1, 2, 4})
    for (const plan::Layout& layout : plan::layouts(spec.model, dp * pp, spec.batch, DType::kF32))
      if (layout.degrees.dp == dp && layout.microbatches == 2 && layout.reduce == reduce)
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
  std::set<std::string> first_losses;
  int layouts = 0;
  for (std::int64_t dp : {1, 2, 4})
    for (plan::Period reduce : {plan::Period::kStep, plan::Period::kMicrobatch}) {
      const std::string name = "dp" + std::to_string(dp) + " " + std::string(plan::name_of(reduce));
      for (const std::string& layout : members(dp, reduce)) {
        const std::string bits = bits_on_threads(layout);
        first_losses.insert(bits.substr(0, bits.find(' ')));
        const auto [first, is_new] = classes.try_emplace(name, bits);
        EXPECT_EQ(first->second, bits) << layout << " in class " << name;
        ++layouts;
      }
    }
  // Before any sum over ranks there is only one loss, whatever the class.
  EXPECT_EQ(first_losses.size(), 1u);
  std::set<std::string> different;
  for (const auto& [name, bits] : classes)
    if (name.ends_with("step")) different.insert(bits);
  EXPECT_EQ(different.size(), 3u) << "data degrees 1, 2 and 4 add in different orders";
  std::printf("%d layouts in %zu classes\n", layouts, classes.size());
}

TEST(Bits, SameAgainAndInAnyOrderOfDelivery) {
  const std::string layout = "pp2 dp2x2 zero3 1f1b m2 mb recompute=cheap";
  const std::string bits = bits_on_threads(layout);
  EXPECT_EQ(bits_on_threads(layout), bits);
  for (std::uint64_t seed = 1; seed <= 6; ++seed) EXPECT_EQ(bits_on_threads(layout, seed), bits);
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
        std::pair("pp2 dp2 zero3 m2", 4)}) {
    const std::string bits = bits_on_threads(layout);
    EXPECT_EQ(std::ranges::count(bits, '\n'), kSteps);
    EXPECT_EQ(bits_on_processes(layout, ranks), bits) << layout;
  }
}

}  // namespace
}  // namespace lockstep::train
