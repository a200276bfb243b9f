// `plan --risk`: the fastest layout that runs out of memory in no more of runs like it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "lockstep/observe/memory_risk.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

Answer ask_risk(const Words& more) {
  Words words = {"plan",  "--model", "llama3-8b",      "--cluster", "h100:16",
                 "--seq", "8192",    "--global-batch", "64"};
  words.insert(words.end(), more.begin(), more.end());
  return answer(plan_verb(), words);
}

std::vector<Json> plans_of(Words more) {
  more.emplace_back("--json");
  const Answer ran = ask_risk(more);
  EXPECT_TRUE(ran.code == ExitCode::kOk || ran.code == ExitCode::kCheckFailed) << ran.err;
  return Json::parse(ran.out)->find("plans")->items();
}

double step_of(const Json& row) { return row.find("step_s")->find("total")->as_real(); }
double share_of(const Json& row) { return row.find("memory")->find("out_of_memory")->as_real(); }

// Against every layout that any headroom finds: none that may be dared is faster.
TEST(PlanRisk, ChoosesTheFastestThatMayBeDared) {
  std::vector<Json> all;
  for (double headroom = 0; headroom < 0.4; headroom += 0.02)
    for (const Json& row : plans_of({"--top", "64", "--headroom", strf("%g", headroom)}))
      all.push_back(row);
  double before = 1e30;
  for (const double risk : {0.001, 0.02, 0.1, 0.3, 0.49}) {
    const Json best = plans_of({"--risk", strf("%g", risk)}).front();
    EXPECT_LE(share_of(best), risk * (1 + 1e-9));
    EXPECT_LE(step_of(best), before * 1.001) << risk;  // fewer axes may cost so much
    before = step_of(best);
    for (const Json& other : all)
      if (share_of(other) <= risk) {
        EXPECT_LE(step_of(best), 1.001 * step_of(other)) << risk << " " << other.dump();
      }
  }
}

// Allocated, reserved and shown are three numbers, and the share follows from what is needed.
TEST(PlanRisk, SaysThreeReadingsAndTheShare) {
  for (const Json& row : plans_of({})) {
    const auto bytes = [&](const char* name) { return row.find("memory")->find(name)->as_real(); };
    EXPECT_LT(bytes("allocated_bytes"), bytes("reserved_bytes"));
    EXPECT_NEAR(bytes("shown_bytes") - bytes("reserved_bytes"), 5.5e9, 1);
    EXPECT_DOUBLE_EQ(share_of(row),
                     observe::out_of_memory(observe::published_need(), bytes("device_bytes"),
                                            bytes("device_has_bytes")));
  }
  EXPECT_NE(ask_risk({}).out.find("of runs like it; allocated "), std::string::npos);
}

// A gate that is told a risk judges a given layout by it, too.
TEST(PlanRisk, IsOfGivenLayoutsToo) {
  const Json best = plans_of({"--headroom", "0"}).front();
  const double share = share_of(best);
  ASSERT_GT(share, 0.01);
  ASSERT_LT(share, 0.9);
  for (const double factor : {0.9, 1.1})
    EXPECT_EQ(ask_risk({"--fits", "--layout", best.find("name")->as_text(), "--risk",
                        strf("%.17g", share * factor)})
                  .code,
              factor > 1 ? ExitCode::kOk : ExitCode::kCheckFailed);
}

class PlanRiskObserved : public testing::Test {
 protected:
  // Runs that took so many times what was predicted of them.
  void observe(double factor) {
    std::string text = "layout,step_s,memory_gib,memory_is\n";
    for (const char* layout : {"tp1 pp1 dp16 zero3 microbatch=1", "tp2 pp1 dp8 zero1 microbatch=1",
                               "tp2 pp2 dp4 zero1 1f1b microbatch=1"}) {
      const Json row = plans_of({"--layout", layout}).front();
      const double gib = row.find("memory")->find("reserved_bytes")->as_real() / kGib;
      text += strf("%s,%.6f,%.6f,reserved\n", layout, step_of(row), factor * gib);
    }
    ASSERT_TRUE(write_text(file_, text).ok());
  }

  std::vector<Json> plans(const Words& more) {
    Words words = {"--observed", file_};
    words.insert(words.end(), more.begin(), more.end());
    return plans_of(words);
  }

  const std::string file_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
};

// Runs that took more make the same layout riskier, and what is chosen by prediction smaller.
TEST_F(PlanRiskObserved, MemoryFollowsTheRuns) {
  const std::string layout = plans_of({}).front().find("name")->as_text();
  double before = 0, most = 1e30;
  for (const double factor : {0.7, 0.85, 1.0, 1.15}) {
    observe(factor);
    const Json same = plans({"--layout", layout, "--headroom", "0"}).front();
    EXPECT_GT(share_of(same), before) << factor;
    before = share_of(same);
    const Json best = plans({"--risk", "0.1"}).front();
    EXPECT_LE(share_of(best), 0.1);
    EXPECT_TRUE(best.find("fits")->as_bool());
    const Json plain = plans_of({"--layout", best.find("name")->as_text()}).front();
    const double predicted = plain.find("memory")->find("device_bytes")->as_real();
    EXPECT_NEAR(best.find("memory")->find("device_bytes")->as_real() / predicted, factor, 0.12);
    EXPECT_LT(predicted, 1.02 * most) << factor;
    most = predicted;
  }
}

// Against every layout of a finer search: none that may be dared is faster.
TEST_F(PlanRiskObserved, ChoosesTheFastestThatMayBeDared) {
  for (const double factor : {0.8, 1.1}) {
    observe(factor);
    const Json best = plans({"--risk", "0.1"}).front();
    for (double headroom = 0; headroom < 0.4; headroom += 0.1)
      for (const Json& row : plans_of({"--top", "4", "--headroom", strf("%g", headroom)})) {
        const Json judged = plans({"--layout", row.find("name")->as_text()}).front();
        if (share_of(judged) <= 0.1) {
          EXPECT_LE(step_of(best), 1.002 * step_of(judged)) << row.find("name")->as_text();
        }
      }
  }
}

TEST(PlanRisk, RefusesWhatIsNoRisk) {
  for (const char* risk : {"0", "1", "-0.1", "1.5", "5%"})
    EXPECT_EQ(ask_risk({"--risk", risk}).code, ExitCode::kUsage) << risk;
  EXPECT_NE(ask_risk({"--risk", "0.05", "--headroom", "0.1"}).err.find("LS0106"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
