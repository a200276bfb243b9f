// `plan --observed`: times follow runs that the user timed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

const std::string kLayout = "tp1 pp1 dp64 zero3 microbatch=1 recompute=block";

class PlanObserved : public testing::Test {
 protected:
  void write(const std::string& text) { ASSERT_TRUE(write_text(file_, text).ok()); }

  Answer plan(std::vector<std::string> more, bool observed = true) {
    std::vector<std::string> words = {"plan",  "--model", "llama3-8b",      "--cluster", "h100:64",
                                      "--seq", "8192",    "--global-batch", "512"};
    if (observed) words.insert(words.end(), {"--observed", file_});
    words.insert(words.end(), more.begin(), more.end());
    return answer(plan_verb(), words, 0);
  }

  Json json(std::vector<std::string> more, bool observed = true) {
    more.emplace_back("--json");
    const Answer ran = plan(std::move(more), observed);
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
    return *Json::parse(ran.out);
  }

  // Seconds that --layout says without runs.
  double predicted(const std::string& layout) {
    return json({"--layout", layout}, false)
        .find("plans")
        ->items()
        .front()
        .find("step_s")
        ->find("total")
        ->as_real();
  }

  std::string refused(const std::string& text) {
    write(text);
    const Answer ran = plan({});
    EXPECT_NE(ran.code, ExitCode::kOk);
    EXPECT_NE(ran.code, ExitCode::kBug);
    return ran.err;
  }

  std::string file_ = (std::filesystem::temp_directory_path() /
                       testing::UnitTest::GetInstance()->current_test_info()->name())
                          .string() +
                      ".csv";
};

// A run that took half as long again: the same layout does, and all that follows from its time.
TEST_F(PlanObserved, TimesFollowALoneRun) {
  const double before = predicted(kLayout);
  write(strf("layout,step_s\n%s,%.6f\n", kLayout.c_str(), 1.5 * before));
  const Json found = json({"--layout", kLayout, "--tokens", "1e12", "--price", "2"});
  const Json& row = found.find("plans")->items().front();
  const double after = row.find("step_s")->find("total")->as_real();
  EXPECT_NEAR(after / before, 1.5, 0.05);
  EXPECT_EQ(row.find("step_s")->find("p50")->as_real(), after);
  EXPECT_GT(row.find("step_s")->find("p95")->as_real(), 1.05 * after);
  EXPECT_NEAR(row.find("tokens_per_s")->as_real(), 512 * 8192 / after, 1);
  const Json plain = json({"--layout", kLayout, "--tokens", "1e12", "--price", "2"}, false);
  const Json& was = plain.find("plans")->items().front();
  const double factor = after / before;
  EXPECT_NEAR(row.find("run")->find("money")->as_real(),
              factor * was.find("run")->find("money")->as_real(), 1e-3);
  EXPECT_NEAR(row.find("mfu")->find("causal")->as_real() * factor,
              was.find("mfu")->find("causal")->as_real(), 1e-9);
  EXPECT_EQ(found.find("observed")->find("runs")->items().size(), 1U);
  EXPECT_FALSE(found.find("observed")->find("runs")->items()[0].find("contradicts")->as_bool());
}

TEST_F(PlanObserved, NamesTheRowThatContradicts) {
  std::string text = "layout,step_s,global_batch\n";
  for (const int batch : {128, 256, 384, 512, 512})
    text += strf("%s,%.6f,%d\n", kLayout.c_str(),
                 predicted(kLayout) * batch / 512 * (batch == 256 ? 3 : 1.1), batch);
  write(text);
  const Answer ran = plan({});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_NE(ran.out.find("line 3 contradicts"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("line 2 contradicts"), std::string::npos) << ran.out;
}

// Cells of a row are its own: another model, cluster and batch.
TEST_F(PlanObserved, RowsMayBeOfOtherModels) {
  write("layout,step_s,model,cluster,seq,global_batch,dtype\n" + kLayout +
        ",4,llama3-8b,h100:64,4096,256,fp8\n"
        "\"tp=8,pp=2,zero=1,schedule=1f1b,microbatch=1\",9,llama3-70b,h100:128,8192,64,\n"
        "tp1 pp1 ep8 zero1 microbatch=1 recompute=block,9,mixtral-8x7b,h100:64,4096,512,\n");
  const Json found = json({});
  const auto& runs = found.find("observed")->find("runs")->items();
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_NE(runs[1].find("layout")->as_text().find("tp8"), std::string::npos);
  EXPECT_GT(runs[1].find("predicted_s")->as_real(), 0);
}

TEST_F(PlanObserved, RefusesWithLineAndColumn) {
  EXPECT_NE(refused("layout,step\n").find("`step`"), std::string::npos);
  EXPECT_NE(refused("layout\n" + kLayout + "\n").find("`step_s` is missing"), std::string::npos);
  const auto row = [&](const std::string& cells) { return refused("layout,step_s,seq\n" + cells); };
  EXPECT_NE(row(kLayout + ",-1,\n").find("line 2: column step_s"), std::string::npos);
  EXPECT_NE(row("\n" + kLayout + ",nan,\n").find("line 3: column step_s"), std::string::npos);
  EXPECT_NE(row(kLayout + ",4,8k\n").find("column seq: `8k`"), std::string::npos);
  EXPECT_NE(row(kLayout + ",4\n").find("2 cells"), std::string::npos);
  EXPECT_NE(row("tp1 pp1,4,\n").find("does not say zero"), std::string::npos);
  EXPECT_NE(row("tp1 pp1 zero1,4,\n").find("does not say microbatch"), std::string::npos);
  EXPECT_NE(row("tp2 pp2 zero1 microbatch=1,4,\n").find("its schedule"), std::string::npos);
  EXPECT_NE(row("tp3 pp1 zero1 microbatch=1,4,\n").find("line 2: column layout"),
            std::string::npos);
  EXPECT_NE(row("tp0 pp1 zero1 microbatch=1,4,\n").find("line 2: column layout"),
            std::string::npos);
  EXPECT_NE(row("tp1 dp7 zero1 microbatch=1,4,\n").find("line 2: column layout"),
            std::string::npos);
  EXPECT_NE(row(kLayout + ",9000,\n").find("line 2: column step_s: 9000 s, where"),
            std::string::npos);  // milliseconds
  EXPECT_NE(refused("layout,step_s,model\n" + kLayout + ",4,llama9\n").find("column model"),
            std::string::npos);
  EXPECT_NE(refused("layout,step_s,cluster\n" + kLayout + ",4,h100:x\n").find("column cluster"),
            std::string::npos);
  EXPECT_NE(refused("layout,step_s\n").find("no runs"), std::string::npos);
}

TEST_F(PlanObserved, RefusesTimesItCannotCorrect) {
  write("layout,step_s\n" + kLayout + ",4\n");
  for (const auto& more :
       std::vector<std::vector<std::string>>{{"--explain"},
                                             {"--what-if", "network=2x"},
                                             {"--report", file_ + ".html"},
                                             {"--compare", "b200:8"},
                                             {"--tokens", "1T", "--target-days", "30"},
                                             {"--tokens", "1T", "--price", "2", "--max-cost", "9"},
                                             {"--for", "megatron"},
                                             {"--emit", "megatron"}}) {
    const Answer ran = plan(more);
    EXPECT_EQ(ran.code, ExitCode::kUsage);
    EXPECT_NE(ran.err.find("--observed"), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace lockstep::cli
