#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/codes.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

Answer lookup_page(const std::vector<std::string>& words) { return answer(catalog(), words); }

TEST(Explain, SaysWhyWithAnExampleAndWhatToDo) {
  for (const CodeRow& row : code_table()) {
    const Answer one = lookup_page({"explain", to_text(row.code)});
    EXPECT_NE(one.out.find("\nFor example:\n"), std::string::npos) << one.out;
    EXPECT_NE(one.out.find("\nWhat to do:\n"), std::string::npos) << one.out;
    std::istringstream lines(one.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  }
}

// Examples are what the program says, where a command line is enough to make it say so.
TEST(Explain, ExamplesAreTrue) {
  const std::string tiny = support::source_dir() + "/examples/tiny.toml";
  const std::map<Code, std::vector<std::string>> commands = {
      {Code::kUnknownCommand, {"simulat"}},
      {Code::kUnknownOption, {"plan", "--modle"}},
      {Code::kBadOptionValue, {"bench", "comm", "--ranks", "1"}},
      {Code::kFileUnreadable, {"config", "check", "run.tml"}},
      {Code::kUnknownKey, {"config", "check", tiny, "--set", "layout.tensor=2"}},
      {Code::kWrongType, {"config", "check", tiny, "--set", "batch.seq=\"8192\""}},
      {Code::kOutOfRange, {"config", "check", tiny, "--set", "layout.zero=4"}},
      {Code::kUnknownChoice, {"config", "check", tiny, "--set", "train.dtype=\"float32\""}},
      {Code::kMissingKey, {"plan", "/dev/null"}},
      {Code::kConflict, {"config", "check", tiny, "--set", "layout.prefetch=2"}},
      {Code::kDegreesDoNotMatchWorld,
       {"plan", "--model", "llama3-8b", "--cluster", "h100:512", "--seq", "8192", "--global-batch",
        "512", "--layout", "tp=7"}},
      {Code::kBadDegree, {"config", "check", tiny, "--set", "layout.pp=9"}},
      {Code::kDoesNotDivide,
       {"config", "check", support::source_dir() + "/tests/golden/cli/contradictions.toml"}},
      {Code::kNothingDivides,
       {"plan", "--model", "llama3-405b", "--cluster", "h100:16384", "--seq", "8192",
        "--global-batch", "1"}},
      {Code::kTargetMissed,
       {"plan", "--model", "llama3-8b", "--cluster", "h100:8", "--seq", "8192", "--global-batch",
        "512", "--tokens", "15T", "--target-days", "30"}},
      {Code::kUnknownModel, {"model", "llama3-80b"}},
      {Code::kUnknownDevice, {"cluster", "h1000"}},
      {Code::kBadCluster, {"cluster", "h100:12"}},
      {Code::kNoCheckpoint, {"checkpoint", "ls", "out"}}};
  for (const CodeRow& row : code_table())
    if (const auto at = commands.find(row.code); at != commands.end()) {
      const Answer ran = lookup_page(at->second);
      EXPECT_NE(ran.err.find(join_parts(to_text(row.code), "]: ", row.example)), std::string::npos)
          << ran.err;
    }
}

TEST(Explain, KnowsEveryCode) {
  const std::string list = lookup_page({"explain"}).out;
  for (const CodeRow& row : code_table()) {
    EXPECT_NE(list.find(to_text(row.code)), std::string::npos);
    const Answer one = lookup_page({"explain", to_text(row.code)});
    EXPECT_EQ(one.code, ExitCode::kOk);
    EXPECT_NE(one.out.find(row.title), std::string::npos);
    const Result<Json> json =
        Json::parse(lookup_page({"explain", to_text(row.code), "--json"}).out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->find("codes")->items()[0].find("explanation")->as_text(), row.explanation);
  }
}

}  // namespace
}  // namespace lockstep::cli
