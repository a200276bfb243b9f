// What `launch` refuses before it starts anything. tests/oracles/launched_test.py has what it runs.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/parse.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> words(const std::string& options, const std::string& train) {
  const std::string tiny = support::source_dir() + "/examples/tiny.toml --mock-data ";
  std::istringstream text("launch " + options + " train " + tiny + train);
  std::vector<std::string> all;
  for (std::string word; text >> word;) all.push_back(word);
  return all;
}

TEST(Launch, WhatCannotBeRestartedOrStartedIsRefused) {
  struct Case {
    std::vector<std::string> words;
    std::string told;
  };
  const std::string saves = "--save /tmp/no-such --save-interval 1 ";
  for (const auto& [given, told] : std::vector<Case>{
           {{"launch"}, "needs COMMAND"},
           {{"launch", "verify"}, "`launch` starts `train`, not `verify`"},
           {words("", ""), "`train` has no --save:"},
           {words("", "--save /tmp/no-such"), "`train` has no --save-interval:"},
           {words("", saves + "--processes"), "starts its ranks itself"},
           {words("", saves + "--text a.txt"), "`train --text` is for one start, not for ranks"},
           {words("", saves + "--dry-run"), "`train --dry-run` is for one start, not for ranks"},
           {words("", saves + "--version"), "--version behind `train` is not for ranks"},
           {words("", saves + "--max-restarts 3"),
            "`lockstep train` has no option `--max-restarts`"},
           {words("--save x", saves), "`lockstep launch` has no option `--save`"},
           {words("--max-restarts -1", saves), "--max-restarts must be at least 0"},
           {words("--nproc 3", saves), "--nproc 3, but the run file has 1 rank"},
           {words("", saves + "--set layout.dp=x"), "`layout.dp`"},
           {words("--master-addr a", saves), "--master-addr is given, but nothing says"},
           {words("--nnodes 2 --node-rank 0 --master-addr 127.0.0.1", saves),
            "1 rank cannot be shared evenly by 2 hosts"},
           {words("--nnodes 2 --node-rank 0 --master-addr 10.9.9.9", saves),
            "is not set, and the coordinator"},
           {words("--logs /proc/no/such", saves), "--logs /proc/no/such"},
           {words("--snapshot-interval 0", saves), "--snapshot-interval must be at least 1"},
           {words("--snapshot-interval 2 --max-restarts 0", saves),
            "--snapshot-interval, but --max-restarts is 0"},
           {words(
                "--snapshot-interval 2 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --nproc 1",
                saves),
            "--snapshot-interval, but there are 2 hosts"},
           {words("--snapshot-interval 2 --snapshot-dir /proc", saves),
            "--snapshot-dir /proc: is not a file system in memory"},
           {words("--snapshot-interval 2 --snapshot-dir /no/such", saves),
            "--snapshot-dir /no/such: No such file"},
           {words("--snapshot-interval 2", saves + "--set model.hidden=65536"),
            "free, and 3 copies of the state take "}}) {
    const Answer answered = answer(catalog(), given);
    EXPECT_NE(answered.code, ExitCode::kOk) << told;
    EXPECT_NE(answered.err.find(told), std::string::npos) << answered.err;
  }
}

// Options of the same name may stand on both sides of `train`.
TEST(Launch, WordsBehindTheCommandAreTheCommands) {
  const auto apart = [](std::vector<std::string> all) {
    set_command_apart(catalog(), all);
    std::string text;
    for (const std::string& word : all) text += word + " ";
    return text;
  };
  EXPECT_EQ(apart({"launch", "--nproc", "4", "train", "f", "--json"}),
            "launch --nproc 4 -- train f --json ");
  EXPECT_EQ(apart({"--color", "never", "launch", "--json", "--nproc=4", "train", "--logs"}),
            "--color never launch --json --nproc=4 -- train --logs ");
  EXPECT_EQ(apart({"launch", "--", "train"}), "launch -- train ");
  EXPECT_EQ(apart({"train", "f", "--json"}), "train f --json ");
  EXPECT_EQ(apart({"launch", "--unknown", "--help"}), "launch --unknown --help ");
  EXPECT_EQ(apart({}), "");
  EXPECT_EQ(apart({"-h"}), "-h ");
}

}  // namespace
}  // namespace lockstep::cli
