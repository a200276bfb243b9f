// The real program: what a shell sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

#include "lockstep/base/json.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

TEST_F(Binary, AloneItShowsHelpAndSucceeds) {
  const Ran ran = run("");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_TRUE(support::matches_golden("cli/help/lockstep.txt", ran.out));
}

TEST_F(Binary, ExitCodesAreTheContract) {
  write("good.toml", "model.name = \"llama-tiny\"\nbatch = { seq = 8, global_batch = 1 }\n");
  write("bad.toml", "model.name = 3\n");
  EXPECT_EQ(run("--version").code, 0);
  EXPECT_EQ(run("config check bad.toml").code, 2);
  EXPECT_EQ(run("nonsense").code, 2);
  EXPECT_EQ(run("config check missing.toml").code, 3);
  EXPECT_EQ(run("config check .").code, 3);
  EXPECT_EQ(run("explain >/dev/full").code, 3);
}

// Without the module beside it, or LibTorch on the machine.
TEST_F(Binary, WhatNeedsNoTorchLoadsNone) {
  std::filesystem::copy(LOCKSTEP_BINARY, dir_ / "lockstep");
  EXPECT_EQ(run("--version", "", "./lockstep").code, 0);
  EXPECT_EQ(run("model llama3-8b", "", "./lockstep").code, 0);
  const Ran refused = run("train", "", "./lockstep");
  EXPECT_EQ(refused.code, 3);
  EXPECT_TRUE(refused.err.starts_with("error[LS0601]: `lockstep train` needs LibTorch, which "))
      << refused.err;
  const bool names_it = refused.err.find("liblockstep_torch.so") != std::string::npos;
  EXPECT_EQ(names_it, LOCKSTEP_WITH_TORCH != 0) << refused.err;
}

TEST_F(Binary, FiveMistakesAreFiveDiagnostics) {
  std::filesystem::copy(support::source_dir() + "/tests/golden/cli/five_mistakes.toml",
                        dir_ / "five_mistakes.toml");
  const Ran ran = run("config check five_mistakes.toml");
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(support::matches_golden("cli/five_mistakes.txt", ran.err));
}

TEST_F(Binary, TheEnvironmentSetsKeys) {
  const Ran ran = run("config show --origin", "LOCKSTEP_LAYOUT_TP=8");
  EXPECT_NE(ran.out.find("tp = 8"), std::string::npos);
  EXPECT_NE(ran.out.find("# environment LOCKSTEP_LAYOUT_TP"), std::string::npos) << ran.out;
}

TEST_F(Binary, AMisspeltVariableIsAMistake) {
  const Ran ran = run("config show", "LOCKSTEP_LAYOUT_TPP=8");
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find("did you mean `LOCKSTEP_LAYOUT_TP`"), std::string::npos) << ran.err;
}

TEST_F(Binary, AFlagBeatsTheEnvironmentBeatsTheFile) {
  write("run.toml", "[layout]\ntp = 2\npp = 2\n[batch]\nseq = 8\nglobal_batch = 8\n");
  const Ran ran =
      run("config show run.toml --set layout.tp=4", "LOCKSTEP_LAYOUT_TP=8 LOCKSTEP_LAYOUT_PP=8");
  EXPECT_NE(ran.out.find("tp = 4\n"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("pp = 8\n"), std::string::npos) << ran.out;
}

TEST_F(Binary, IsPlainInAPipeUnlessForced) {
  EXPECT_EQ(run("nonsense").err.find('\x1b'), std::string::npos);
  EXPECT_NE(run("nonsense --color always").err.find('\x1b'), std::string::npos);
  EXPECT_NE(run("nonsense", "CLICOLOR_FORCE=1").err.find('\x1b'), std::string::npos);
}

// Prose is as wide as COLUMNS says; a table in a pipe is whole unless COLUMNS says otherwise.
TEST_F(Binary, ObeysColumns) {
  const std::string plan =
      "plan --model llama3-70b --cluster h100:512 --seq 8192 --global-batch 512";
  const auto widest = [&](const std::string& words, const std::string& variables) {
    std::istringstream lines(run(words, variables).out);
    std::size_t most = 0;
    for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
    return most;
  };
  EXPECT_LE(widest("explain LS0840", "COLUMNS=60"), 60U);
  EXPECT_GT(widest("explain LS0840", "COLUMNS=nonsense"), 60U);
  EXPECT_GT(widest(plan, ""), 100U);
  EXPECT_LE(widest(plan, "COLUMNS=80"), 80U);
  EXPECT_GT(widest(plan, "COLUMNS=300"), 100U);
}

// Whatever is in the file: an exit code of the contract, text that is safe to print, and valid
// JSON.
TEST_F(Binary, SurvivesAnyFile) {
  const std::string files[] = {"",
                               "\n\n\n",
                               std::string("\x7f"
                                           "ELF\0\1\2\xff\xfe",
                                           9),
                               "[batch]\r\nseq = \"8\"\r\n",
                               "\xef\xbb\xbf[batch]\nseq = \"8\"\n",
                               "\t[batch]\n\t\tseq\t=\t\"8\"\n",
                               "name = \"\xe6\x97\xa5\xe6\x9c\xac\"\n",
                               std::string(100000, 'x') + " = 1\n",
                               "a = \"" + std::string(100000, 'y') + "\"\n",
                               std::string(5000, '['),
                               "x = " + std::string(5000, '['),
                               "{\"batch\": " + std::string(5000, '['),
                               "{\"model\": null}",
                               "{}",
                               "extends = \"run.toml\"\n",
                               "extends = 3\n",
                               "a\x1b[2J = 1\n"};
  for (const std::string& text : files) {
    write("run.toml", text);
    const Ran plain = run("config check run.toml");
    EXPECT_EQ(plain.code, 2) << plain.err;
    EXPECT_EQ(plain.out, "");
    EXPECT_EQ(plain.err.find('\x1b'), std::string::npos);
    const Ran json = run("config check run.toml --json");
    EXPECT_EQ(json.code, 2);
    EXPECT_TRUE(Json::parse(json.err).ok()) << json.err;
  }
}

}  // namespace
}  // namespace lockstep::cli
