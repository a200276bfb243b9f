#include "cli/plan/file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/run_file.h"
#include "lockstep/spec/spec.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

class PlanFile : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  static std::string example() { return support::source_dir() + "/examples/tiny.toml"; }

  // A plan for the example, in which `key` of `table` says `value`.
  std::string plan(const std::string& table, const std::string& key, const std::string& value) {
    config::Report report;
    config::Document made = *config::load_document(example(), report);
    for (const std::string& assignment :
         {std::string("layout.pp=2"), std::string("layout.zero=0"),
          std::string("layout.schedule=gpipe"), std::string("batch.microbatch=8"),
          table + "." + key + "=" + value})
      EXPECT_TRUE(config::apply_override(assignment, made, report));
    const std::string name = (dir_ / "plan.json").string();
    std::ofstream(name) << config::to_json(made.root()).dump(2);
    return name;
  }

  std::optional<spec::Spec> put(const std::string& plan, std::vector<std::string> set = {}) {
    Args args;
    args.set("plan", {plan});
    args.set("FILE", {example()});
    args.set("set", std::move(set));
    config::Report report;
    auto run = load_run(args, report);
    auto made = run ? with_plan(args, *run, report) : std::nullopt;
    const auto spec = made ? spec::read_spec(*made, report) : std::nullopt;
    said_ = report.text("", false);
    return spec;
  }

  std::filesystem::path dir_;
  std::string said_;
};

TEST_F(PlanFile, ReplacesLayoutAndMicrobatchAndNothingElse) {
  const auto spec = put(plan("layout", "tp", "1"), {"train.steps=7"});
  ASSERT_TRUE(spec) << said_;
  config::Report report;
  const auto before = spec::read_spec(*config::load_document(example(), report), report);
  EXPECT_EQ(to_text(spec->layout), "pp2 dp1 zero0 gpipe");
  EXPECT_EQ(spec->batch.microbatch, 8);
  EXPECT_EQ(spec->batch.global_batch, before->batch.global_batch);
  EXPECT_EQ(spec->model, before->model);
  EXPECT_EQ(spec->train.steps, 7);
  EXPECT_EQ(spec->train.lr.peak, before->train.lr.peak);
}

TEST_F(PlanFile, OfAnotherRunIsRefusedWithBothValues) {
  const struct {
    const char *table, *key, *value, *says;
  } cases[] = {{"model", "hidden", "128", "is for model.hidden = 128, but "},
               {"model", "layers", "8", "is for model.layers = 8, but "},
               {"model", "vocab", "512", "is for model.vocab = 512, but "},
               {"batch", "seq", "32", "is for batch.seq = 32, but "},
               {"batch", "global_batch", "64", "is for batch.global_batch = 64, but "}};
  for (const auto& one : cases) {
    EXPECT_FALSE(put(plan(one.table, one.key, one.value))) << one.says;
    EXPECT_NE(said_.find(one.says), std::string::npos) << said_;
    EXPECT_NE(said_.find("tiny.toml has "), std::string::npos) << said_;
    EXPECT_NE(said_.find("lockstep plan "), std::string::npos) << said_;
  }
  // What does not change a plan may differ.
  EXPECT_TRUE(put(plan("train", "lr", "0.5"))) << said_;
}

TEST_F(PlanFile, AndSettingsAreNotMixed) {
  for (const char* set : {"layout.dp=2", "batch.microbatch=2"}) {
    EXPECT_FALSE(put(plan("layout", "tp", "1"), {set}));
    EXPECT_NE(said_.find("both say how the run is divided"), std::string::npos) << said_;
  }
}

TEST_F(PlanFile, ThatIsMissingOrNoneIsDescribeFromItsName) {
  EXPECT_FALSE(put((dir_ / "none.json").string()));
  EXPECT_NE(said_.find("none.json"), std::string::npos) << said_;
  std::ofstream(dir_ / "bad.json") << "{\"layout\": {\"tp\": \"two\"}}";
  EXPECT_FALSE(put((dir_ / "bad.json").string()));
  EXPECT_NE(said_.find("bad.json"), std::string::npos) << said_;
}

}  // namespace
}  // namespace lockstep::cli
