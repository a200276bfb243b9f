// What `train` says before it runs, what it leaves in a run folder, and what may change when a run
// goes on, seen from a shell.
#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lockstep/base/json.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class RunFolder : public Binary {
 protected:
  static std::string train(const std::string& more) {
    return "train " + support::source_dir() +
           "/examples/tiny.toml --mock-data --seq 16 --global-batch 8 " + more;
  }
  std::string text_of(const std::string& name) const {
    std::stringstream text;
    text << std::ifstream(dir_ / name).rdbuf();
    return text.str();
  }
  // "loss ... grad_norm ..." and "state ..." of a step, of what --oracle printed.
  struct Bits {
    std::string gradient, state;
  };
  static Bits bits_of(const std::string& printed, int step) {
    std::istringstream lines(printed);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("step " + std::to_string(step) + " loss"))
        return {line.substr(0, line.find(" state")), line.substr(line.find(" state"))};
    return {};
  }
};

TEST_F(RunFolder, ADryRunSaysWhatWouldRunAndWritesNothing) {
  const Ran told = run(train("--pp 2 --dp 2 --save out --dry-run"));
  EXPECT_EQ(told.code, 0) << told.err;
  for (const char* part : {"on 4 threads", "predicted", "sent by rank 0", "at that of rank",
                           "dry run: nothing was trained or written"})
    EXPECT_NE(told.out.find(part), std::string::npos) << part << "\n" << told.out;
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  const Json json = Json::parse(run(train("--pp 2 --dp 2 --dry-run --json")).out).value();
  ASSERT_EQ(json.find("ranks")->items().size(), 4u);
  const Json run_json = Json::parse(run(train("--pp 2 --dp 2 --steps 1 --json")).out).value();
  EXPECT_EQ(json.find("ranks")->items()[0].find("peak_bytes")->as_int(),
            run_json.find("steps")->items()[0].find("peak_bytes")->as_int());
  EXPECT_EQ(run(train("--dry-run --save out --resume")).code, 3);  // there is no checkpoint
  EXPECT_EQ(run(train("--dry-run"), "RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1").code,
            2);
}

TEST_F(RunFolder, HoldsTheSettingsInForce) {
  const std::string settings = "--lr 5e-3 --steps 2 --set train.warmup=1 --dp 2 ";
  ASSERT_EQ(run(train(settings + "--save out")).code, 0);
  const std::string same = " --seq 16 --global-batch 8 " + settings;
  EXPECT_EQ(run("config show out/config.toml").out,
            run("config show " + support::source_dir() + "/examples/tiny.toml" + same).out);
  const Json environment = Json::parse(text_of("out/environment.json")).value();
  EXPECT_EQ(environment.find("ranks")->as_int(), 2);
  EXPECT_EQ(environment.find("command")->items()[1].as_text(), "train");
}

// One word from a text to a model, and on from what its folder says.
TEST_F(RunFolder, OfATextHoldsItsTokensAndGoesOn) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "the quick brown fox " + std::to_string(i) + (i % 4 == 0 ? "\n\n" : "\n");
  write("my.txt", text);
  const std::string small =
      " --seq 32 --global-batch 4 --microbatch 1 --set train.eval_samples=4 --set "
      "model.layers=1 --set model.hidden=16 --set model.ffn=16 ";
  const Ran first = run("train --text my.txt --save out --steps 2 --dp 2 --processes" + small);
  ASSERT_EQ(first.code, 0) << first.err;
  for (const char* name : {"text.bin", "text.idx", "config.toml"})
    EXPECT_TRUE(fs::exists(dir_ / "out" / name)) << name;
  const Ran refused = run("train --text my.txt --save out --resume");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("lockstep train out/config.toml --save out --resume"),
            std::string::npos)
      << refused.err;
  const Ran more = run("train out/config.toml --save out --resume --steps 3 --change steps");
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_NE(more.out.find("trained 1 step"), std::string::npos) << more.out;
}

TEST_F(RunFolder, TextIsRefusedBesideWhatSaysOtherwise) {
  write("my.txt", "text\n");
  for (const char* words : {"train --text my.txt", "train --text my.txt --save out --mock-data",
                            "train --text my.txt --save out --dry-run",
                            "train --text my.txt --save out --set train.steps=0"})
    EXPECT_EQ(run(words).code, 2) << words;
  EXPECT_EQ(run("train --text nosuch.txt --save out").code, 3);
  const Ran rank = run("train --text my.txt --save other",
                       "RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=1");
  EXPECT_EQ(rank.code, 2);  // nobody makes the tokens
  EXPECT_NE(rank.err.find("`lockstep data from-text`"), std::string::npos) << rank.err;
  EXPECT_EQ(run("train --text my.txt --save out").code, 3);  // shorter than a sequence
}

TEST_F(RunFolder, SettingsChangeWhereThatIsSaid) {
  const std::string cosine = "--set train.lr_decay=cosine --set train.warmup=0 ";
  ASSERT_EQ(run(train(cosine + "--steps 3 --save out")).code, 0);
  fs::copy(dir_ / "out", dir_ / "other", fs::copy_options::recursive);
  const std::string longer = cosine + "--steps 5 --resume --oracle --save ";
  const Ran refused = run(train(longer + "out"));
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_NE(refused.err.find("--change"), std::string::npos) << refused.err;
  const Ran changed = run(train(longer + "out --change steps"));
  ASSERT_EQ(changed.code, 0) << changed.err;
  // The same weights and samples, so the same gradient; another rate, so another state behind it.
  const Ran both = run(train(longer + "other --change steps,train.lr --lr 1e-3"));
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_FALSE(bits_of(changed.out, 4).gradient.empty()) << changed.out;
  EXPECT_EQ(bits_of(changed.out, 4).gradient, bits_of(both.out, 4).gradient);
  EXPECT_NE(bits_of(changed.out, 4).state, bits_of(both.out, 4).state);
  // What is not named may not change.
  EXPECT_EQ(run(train(longer + "other --change steps --lr 2e-3")).code, 2);
}

TEST_F(RunFolder, OnlyTheRunsPaceMayChange) {
  const Ran seed = run(train("--save out --resume --change seed"));
  EXPECT_EQ(seed.code, 2);
  EXPECT_NE(seed.err.find("`seed` cannot change in a run that is resumed"), std::string::npos)
      << seed.err;
  EXPECT_EQ(run(train("--save out --change lr")).code, 2);  // nothing goes on
}

}  // namespace
}  // namespace lockstep::cli
#endif
