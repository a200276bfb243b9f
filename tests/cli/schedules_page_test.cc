// docs/schedules.md and its pictures are what `lockstep simulate` says about the catalogue;
// LOCKSTEP_UPDATE_GOLDEN=1 rewrites them.
#include "tests/cli/schedules_page.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/pipeline/catalog.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

TEST(SchedulesPage, IsWhatTheCatalogueAndTheSimulatorSay) {
  EXPECT_TRUE(support::matches_golden("../../docs/schedules.md", schedules_page()));
}

TEST(SchedulesPage, HasThePictureOfEverySchedule) {
  const std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "lockstep_schedules_page.svg";
  for (const pipeline::CatalogRow& row : pipeline::catalog()) {
    ask_simulate({"simulate", "--pp", "4", "--microbatches", "8", "--schedule",
                  std::string(row.name), "--svg", path.string()});
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_TRUE(support::matches_golden("../../docs/schedules/" + std::string(row.name) + ".svg",
                                        text.str()));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lockstep::cli
