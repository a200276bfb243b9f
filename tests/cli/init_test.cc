#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/json.h"
#include "lockstep/config/document.h"
#include "lockstep/spec/spec.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class Init : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  std::string file() const { return (dir_ / "run.toml").string(); }
  Answer init(std::vector<std::string> more) const {
    more.insert(more.begin(), {"init", file()});
    return answer(catalog(), more);
  }
  spec::Spec spec() const {
    config::Report report;
    const auto document = config::load_document(file(), report);
    const auto read = document ? spec::read_spec(*document, report) : std::nullopt;
    EXPECT_TRUE(read.has_value() && report.ok()) << report.text("run.toml", false);
    return read.value_or(spec::Spec());
  }

  const fs::path dir_ = fs::path(testing::TempDir()) / "init";
};

TEST_F(Init, WritesWhatItWasTold) {
  ASSERT_EQ(init({"--model", "gpt2", "--dp", "2", "--zero", "3", "--steps", "77", "--set",
                  "train.clip=0.5", "--data", "a b\"c", "--data", "d"})
                .code,
            ExitCode::kOk);
  const spec::Spec made = spec();
  EXPECT_EQ(made.model.name, "gpt2-small");
  EXPECT_EQ(made.layout.degrees.dp, 2);
  EXPECT_EQ(made.layout.zero, 3);
  EXPECT_EQ(made.train.steps, 77);
  EXPECT_EQ(made.train.clip, 0.5);
  ASSERT_EQ(made.data.files.size(), 2u);
}

// What its comments say is what holds: the file with every comment in force is the same run.
TEST_F(Init, CommentsAreTheDefaults) {
  ASSERT_EQ(init({}).code, ExitCode::kOk);
  std::ifstream in(file());
  std::string text;
  for (std::string line; std::getline(in, line);) {
    const bool is_key = line.starts_with("# ") && line.find(" = ") != std::string::npos &&
                        line.find("...") == std::string::npos &&
                        line.find("`") == std::string::npos;
    text += (is_key ? line.substr(2) : line) + "\n";
  }
  const std::string before = to_text(spec());
  std::ofstream(file()) << text;
  EXPECT_EQ(to_text(spec()), before);
  EXPECT_NE(text.find("\ntp = 1 "), std::string::npos) << text;
}

TEST_F(Init, WritesNothingThatWouldNotRun) {
  const Answer told = init({"--tp", "3"});
  EXPECT_EQ(told.code, ExitCode::kUsage);
  EXPECT_NE(told.err.find("tp = 3"), std::string::npos) << told.err;
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(init({"--model", "nosuch"}).code, ExitCode::kUsage);
  EXPECT_EQ(init({"--set", "train.beta1=0.8"}).code, ExitCode::kUsage);  // has no line
  EXPECT_EQ(init({"--set", "train.betta=0.8"}).code, ExitCode::kUsage);
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(Init, WritesOverNothing) {
  fs::create_symlink("nowhere", file());
  EXPECT_EQ(init({}).code, ExitCode::kUsage);
  EXPECT_TRUE(fs::is_symlink(file()));
  fs::remove(file());
  ASSERT_EQ(init({}).code, ExitCode::kOk);
  const std::string before = to_text(spec());
  EXPECT_EQ(init({"--steps", "5"}).code, ExitCode::kUsage);
  EXPECT_EQ(to_text(spec()), before);
}

}  // namespace
}  // namespace lockstep::cli
