// Runs of `train` that are stopped, killed and resumed, and what they leave behind, seen from a
// shell.
#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "cli/app.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

class ResumingSlow : public Binary {
 protected:
  static std::string tiny() {
    return "train " + support::source_dir() + "/examples/tiny.toml --mock-data ";
  }
  // A run of ten steps whose batch, learning rate and evaluations change on the way.
  static std::string ten(const std::string& more) {
    return tiny() +
           "--set train.steps=10 --set train.eval_interval=4 --set train.lr_decay=cosine "
           "--set batch.ramp_start=16 --set batch.ramp_increment=16 --set batch.ramp_samples=96 " +
           more;
  }

  std::string bits(const std::string& words) {
    const Ran ran = run(words + " --oracle");
    EXPECT_EQ(ran.code, 0) << words << "\n" << ran.err;
    return ran.out;
  }
  // Lines of steps after `step`.
  static std::string after(const std::string& bits, int step) {
    std::istringstream lines(bits);
    std::string kept;
    for (std::string line, word; std::getline(lines, line);) {
      int number = 0;
      std::istringstream(line) >> word >> number;
      if (number > step) kept += line + "\n";
    }
    return kept;
  }
  // The words of a command, for Running.
  std::vector<std::string> shell(const std::string& words) {
    std::vector<std::string> all = {"train"};
    std::istringstream text(words);
    for (std::string word; text >> word;)
      if (word != "train") all.push_back(word == "out" ? (dir_ / word).string() : word);
    return all;
  }
  // Names and sizes of all files.
  std::string listing(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(dir_ / folder))
      if (entry.is_regular_file())
        names.push_back(entry.path().string() + " " + std::to_string(entry.file_size()) + "\n");
    std::ranges::sort(names);
    std::string text;
    for (const std::string& name : names) text += name;
    return text;
  }
  std::vector<Json> metrics(const std::string& folder) {
    std::ifstream file(dir_ / folder / "metrics.jsonl");
    std::vector<Json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line).value());
    return lines;
  }
  static std::vector<std::int64_t> steps(const std::vector<Json>& lines, const std::string& event) {
    std::vector<std::int64_t> found;
    for (const Json& line : lines)
      if (line.find("event")->as_text() == event) found.push_back(line.find("step")->as_int());
    return found;
  }
};

constexpr const char* kSameBits[] = {
    "--set layout.dp=2 --set layout.zero=0",
    "--set layout.dp=2 --set layout.zero=3 --set layout.reduce=step",
    "--set layout.dp=2 --set layout.pp=2 --set layout.zero=2 --set layout.reduce=step"};

// Layouts of one class, threads and processes: the same lines.
TEST_F(ResumingSlow, OracleSaysTheSameInEveryLayoutOfAClass) {
  const std::string first = bits(ten(kSameBits[0]));
  EXPECT_EQ(std::ranges::count(first, '\n'), 13);
  EXPECT_EQ(bits(ten(kSameBits[1])), first);
  EXPECT_EQ(bits(ten(kSameBits[2]) + " --processes"), first);
  EXPECT_NE(bits(ten("")), first) << "another data degree rounds otherwise";
}

// Stopped by a signal, resumed under another layout, killed, resumed under a third: every line is
// one of the run that nothing interrupted, and the metrics have each step once.
TEST_F(ResumingSlow, GoesOnAsIfNothingHadHappened) {
  const std::string forty = " --set train.steps=40 ";
  const std::string whole = bits(ten(kSameBits[0] + forty));
  const auto is_part = [&](const std::string& lines) {
    std::istringstream all(lines);
    for (std::string line; std::getline(all, line);) {
      if (!line.starts_with("step ")) continue;
      EXPECT_NE(whole.find(line + "\n"), std::string::npos) << line;
    }
  };
  const auto start = [&](const std::string& layout, const std::string& more) {
    return shell("--save out --save-interval 3 --oracle " + ten(layout + forty + more));
  };
  {
    Running job(start(kSameBits[0], ""));
    ASSERT_TRUE(job.wait_for("step 4 "));
    job.signal(SIGTERM);
    const Ran ran = job.finish();
    EXPECT_EQ(ran.code, 143) << ran.out;
    is_part(ran.out);
  }
  const std::vector<Json> first = metrics("out");
  EXPECT_EQ(first.back().find("event")->as_text(), "stop");
  const std::int64_t stopped = first.back().find("step")->as_int();
  EXPECT_EQ(steps(first, "save").back(), stopped) << "where it stopped";
  {
    Running job(start(kSameBits[2], "--resume --processes"));
    ASSERT_TRUE(job.wait_for("step " + std::to_string(stopped + 8) + " "));
    job.signal_child(SIGKILL);
    const Ran ran = job.finish();
    EXPECT_EQ(ran.code, 4) << ran.out;
    EXPECT_TRUE(ran.out.starts_with("step " + std::to_string(stopped + 1) + " ")) << ran.out;
    is_part(ran.out);
  }
  const Ran last = run(ten(kSameBits[1] + forty) + "--save out --resume --oracle");
  EXPECT_EQ(last.code, 0) << last.err;
  is_part(last.out);
  EXPECT_TRUE(last.out.ends_with(after(whole, 39))) << last.out;
  std::vector<std::int64_t> each(40);
  std::iota(each.begin(), each.end(), 1);
  EXPECT_EQ(steps(metrics("out"), "step"), each);
  EXPECT_EQ(steps(metrics("out"), "resume").size(), 2u);
  EXPECT_EQ(steps(metrics("out"), "end"), std::vector<std::int64_t>{40});
  const Ran again = run(ten(kSameBits[1] + forty) + "--save out --resume");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("nothing left to do: 40 steps of 40 are done"), std::string::npos)
      << again.out;
}

TEST_F(ResumingSlow, BeginsElsewhereFromACheckpointOrItsWeights) {
  const std::string layout = "--set layout.dp=2 ";
  const std::string whole = bits(ten(layout + "--save one --save-interval 5 --keep 0"));
  EXPECT_EQ(bits(ten(layout + "--load one/step-00000005 --save two")), after(whole, 5));
  EXPECT_TRUE(fs::exists(dir_ / "two/step-00000010"));
  EXPECT_EQ(steps(metrics("two"), "start"), std::vector<std::int64_t>{5});
  const std::string tuned = bits(ten("--weights one --set train.seed=7 --set train.lr=1e-3"));
  EXPECT_EQ(std::ranges::count(tuned, '\n'), 13) << "a run of its own";
  const auto loss = [](const std::string& lines) {
    return lines.substr(lines.find("loss"), lines.find("grad_norm") - lines.find("loss"));
  };
  EXPECT_NE(loss(tuned), loss(whole)) << "not the initial weights";
}

TEST_F(ResumingSlow, IsRefusedWhereItWouldSurprise) {
  struct Case {
    std::string words;
    int code;
    std::string says;
  };
  ASSERT_EQ(run(tiny() + "--set train.steps=2 --save out").code, 0);
  write("file", "");
  const Case cases[] = {
      {"--save out", 2, "error[LS0106]: `out` has checkpoints of an earlier run, the newest "},
      {"--save none --resume", 3, "error[LS0825]: `none` has no checkpoint to resume from"},
      {"--load none", 3, "error[LS0825]"},
      {"--load out/metrics.jsonl", 3, "`out/metrics.jsonl` is a file, and checkpoints are folders"},
      {"--load file", 3, "name a folder step-N or one that holds them: `.`?"},
      {"--resume", 2, "--resume, but there is no --save"},
      {"--save-interval 3", 2, "--save-interval, but there is no --save"},
      {"--save out --resume --load out", 2, "--resume, but there is --load too"},
      {"--load out --weights out", 2, "--load, but there is --weights too"},
      {"--metrics out", 2, "error[LS0702]: `out/metrics.jsonl` is there already"},
      {"--load out --set model.layers=3", 2, "error[LS0824]"},
      {"--load out --set train.seed=5", 2, "error[LS0824]"},
      {"--set train.eval_interval=1 --set train.eval_samples=6", 2,
       "eval_samples = 6 is not a multiple of dp x microbatch"},
  };
  const std::string before = listing("out");
  for (const Case& c : cases) {
    const Ran ran = run(tiny() + c.words);
    EXPECT_EQ(ran.code, c.code) << c.words << ran.err;
    EXPECT_NE(ran.err.find(c.says), std::string::npos) << c.words << "\n" << ran.err;
    EXPECT_EQ(ran.out.find("\n      1 "), std::string::npos) << c.words << ran.out;
  }
  EXPECT_EQ(listing("out"), before);
}

// The samples of a run follow from the number of passes over its text, and so from its steps: a run
// that is made longer goes on with the very samples of the long run, or is refused and told why.
TEST_F(ResumingSlow, OnTextIsMadeLongerWithTheSameSamplesOrNotAtAll) {
  write("text.txt", std::string(600, 'a') + "b\n" + std::string(500, 'c') + "\n");
  ASSERT_EQ(run("data from-text text.txt --out text").code, 0);
  write("run.toml", R"(
[model]
name = "small"
layers = 1
hidden = 16
heads = 2
ffn = 32
vocab = 257
max_positions = 32
[data]
files = ["text"]
split = [1, 0, 0]
[batch]
seq = 32
global_batch = 4
microbatch = 4
[train]
steps = 6
lr = 1e-2
)");
  const auto of = [](int steps) { return " --set train.steps=" + std::to_string(steps); };
  bits("train run.toml --save out");
  EXPECT_EQ(bits("train run.toml --save out --resume" + of(8)),
            after(bits("train run.toml" + of(8)), 6));
  const Ran refused = run("train run.toml --save out --resume" + of(60));
  EXPECT_EQ(refused.code, 2) << refused.out;
  for (const char* part : {"error[LS0824]", "was trained on other samples", "train.steps"})
    EXPECT_NE(refused.err.find(part), std::string::npos) << refused.err;
}

TEST_F(ResumingSlow, AnExportedModelSaysHowItsWeightsBegan) {
  ASSERT_EQ(run(tiny() + "--set train.steps=1 --set model.init_std=0.01 --save out").code, 0);
  ASSERT_EQ(run("convert out hf").code, 0);
  std::ifstream file(dir_ / "hf/config.json");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(Json::parse(text.str())->find("initializer_range")->as_real(), 0.01);
}

// On a terminal the last line of stderr is a bar that is drawn again, and gone at the end.
TEST(ProgressBarSlow, IsDrawnOnATerminalOnly) {
  for (const bool is_terminal : {true, false}) {
    std::ostringstream out, err;
    const Environment around = {.lookup = [](const std::string&) { return std::nullopt; },
                                .err_is_terminal = is_terminal,
                                .width = 90};
    EXPECT_EQ(run_lockstep(catalog(),
                           {"train", support::source_dir() + "/examples/tiny.toml", "--mock-data",
                            "--set", "train.steps=3"},
                           around, out, err),
              ExitCode::kOk);
    EXPECT_EQ(out.str().find('\r'), std::string::npos);
    if (!is_terminal) {
      EXPECT_EQ(err.str(), "");
      continue;
    }
    // Only a slow machine tells before that how many weights are drawn.
    const std::string told = err.str(),
                      bar = told.substr(std::min(told.find("\r  1/3"), told.size()));
    EXPECT_TRUE(bar.size() == told.size() || told.starts_with("\rdrawing initial weights: "))
        << told;
    EXPECT_TRUE(bar.starts_with("\r  1/3 [##########....")) << told;
    EXPECT_TRUE(err.str().ends_with("\r\x1b[K")) << err.str();
  }
}

}  // namespace
}  // namespace lockstep::cli
#endif
