// A schedule of one generator and one row is known wherever the others are. The tests of the
// simulator and of the executor that go through the catalogue are linked in beside this file and
// meet it too.
#include <gtest/gtest.h>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/pipeline/catalog.h"
#include "tests/cli/answer.h"
#include "tests/cli/schedules_page.h"

namespace lockstep {
namespace {

constexpr const char* kAdded = "two-waves";

TEST(AddedSchedule, IsSimulatedAsItsRowSays) {
  const Result<Json> told = Json::parse(cli::ask_simulate(
      {"simulate", "--pp", "4", "--microbatches", "8", "--schedule", kAdded, "--json"}));
  ASSERT_TRUE(told.ok());
  const pipeline::CatalogRow& row = pipeline::row(kAdded);
  const pipeline::PipelineTerms terms = {.p = 4, .v = 1, .m = 8};
  const Json& one = told->find("schedules")->items()[0];
  EXPECT_EQ(one.find("schedule")->as_text(), kAdded);
  EXPECT_EQ(one.find("bubble")->as_real(), row.idle(terms));
  EXPECT_EQ(one.find("peak")->as_real(), row.held(terms, 0));
}

TEST(AddedSchedule, IsPlanned) {
  const cli::Answer got =
      cli::answer(cli::plan_verb(),
                  {"plan", "--model", "llama3-70b", "--cluster", "h100:64", "--seq", "8192",
                   "--global-batch", "256", "--layout", "pp4", "--schedules", kAdded, "--json"});
  ASSERT_EQ(got.code, cli::ExitCode::kOk) << got.err;
  EXPECT_NE(got.out.find(join_parts("\"schedule\": \"", kAdded, "\"")), std::string::npos);
}

TEST(AddedSchedule, IsDocumented) {
  const std::string page = cli::schedules_page();
  EXPECT_NE(page.find("## two-waves\n"), std::string::npos);
  EXPECT_NE(page.find("- bubble: `2(p-1)(tF+tB+tW) where m >= 2`"), std::string::npos);
  const cli::Answer refused =
      cli::answer(cli::simulate_verb(), {"simulate", "--pp", "2", "--schedule", "nothing"});
  EXPECT_NE(refused.err.find(kAdded), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace lockstep
