// What `train` prints while it runs, without running it; and that it keeps none of it.
#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/train/torch/log.h"
#include "cli/verbs.h"
#include "lockstep/spec/spec.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

train::Job job_with(const std::string& changes) {
  config::Report report;
  auto document = config::parse_document(
      "[model]\nname = \"llama3-8b\"\nlayers = 2\n[layout]\ndp = 2\n[batch]\nseq = 64\n"
      "global_batch = 32\n[train]\nsteps = 100000\ndtype = \"f32\"\n",
      "run.toml", config::Format::kToml, report);
  const auto more = config::parse_document(changes, "more.toml", config::Format::kToml, report);
  document->merge(*more);
  const auto spec = spec::read_spec(*document, report);
  EXPECT_TRUE(spec) << report.text("run.toml", false);
  return train::make_job(*spec).value();
}

// A log of `job` in so many columns, and what it has written.
struct LogOf {
  LogOf(const train::Job& of, int columns)
      : job(of),
        output{.out = out, .err = err, .width = columns},
        log(job, "2 threads", "made-up text", options, output, [this] { return now; }) {
    log.begin();
  }
  train::StepReport as_predicted() const {
    const train::Prediction prediction = train::predict(job, Rank{0});
    train::StepReport report;
    report.sequences = job.spec.batch.global_batch;
    report.loss = 12.5;
    report.grad_norm = 100.25;
    report.tokens = 2048;
    report.time = {9.5};
    report.peak_bytes = prediction.peak_bytes;
    report.sent = prediction.sent();
    return report;
  }
  const train::Job& job;
  TrainOptions options = [] {
    TrainOptions made;
    made.every = 10;
    return made;
  }();
  std::ostringstream out, err;
  Output output;
  TimePoint now;
  TrainLog log;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(TrainLog, FitsTheWidth) {
  for (const char* changes : {"train.steps = 100000", "train.noise_scale = 10"}) {
    const train::Job job = job_with(changes);
    for (const int width : {40, 60, 80, 100}) {
      LogOf told(job, width);
      train::StepReport report = told.as_predicted();
      told.log.step(0, report, std::nullopt);
      report.peak_bytes += 1 << 20;
      report.updated = false;
      told.log.step(98764, report, std::nullopt);
      for (const std::string& line : lines_of(told.out.str()))
        EXPECT_LE(static_cast<int>(line.size()), width) << told.out.str();
      const bool has_noise = told.out.str().find("noise scale") != std::string::npos;
      EXPECT_EQ(has_noise, job.program.step.noise && width >= 60) << told.out.str();
    }
  }
}

TEST(TrainLog, SpeaksUpOnlyWhenSomethingIsNotAsPredicted) {
  const train::Job job = job_with("");
  LogOf told(job, 80);
  const train::StepReport report = told.as_predicted();
  for (int step = 0; step < 25; ++step) told.log.step(step, report, std::nullopt);
  EXPECT_EQ(told.out.str().find("as predicted"), std::string::npos) << told.out.str();
  train::StepReport off = report;
  off.peak_bytes += off.peak_bytes / 4;
  off.sent = Bytes{2 * off.sent.value};
  told.log.step(25, off, std::nullopt);  // not a tenth step
  EXPECT_TRUE(
      told.out.str().ends_with("\n         not as predicted: peak +25 %, comm bytes +1e+02 %\n"))
      << told.out.str();
  const std::size_t before = told.out.str().size();
  told.log.step(26, off, std::nullopt);  // said already
  EXPECT_EQ(told.out.str().size(), before) << told.out.str();
}

// Positions behind the window see as many keys, the first ones fewer.
TEST(TrainLog, SaysWhatTheBusiestContextRankHas) {
  const train::Job full = job_with("layout.cp = 4");
  EXPECT_NE(LogOf(full, 120).out.str().find("16 tokens of a sequence on each of 4 ranks, of which "
                                            "the busiest has 1.000 x the mean in attention"),
            std::string::npos);
  const train::Job local = job_with("layout.cp = 4\nmodel.window = 8");
  EXPECT_NE(LogOf(local, 120).out.str().find("1.058 x the mean"), std::string::npos)
      << LogOf(local, 120).out.str();
  EXPECT_EQ(LogOf(job_with(""), 120).out.str().find("tokens of a sequence on each"),
            std::string::npos);
}

// Saves that fail after every step are told at once, then once a minute; another trouble does not
// wait for that minute.
TEST(TrainLog, TellsATroubleOnceAMinute) {
  const train::Job job = job_with("");
  LogOf told(job, 80);
  std::vector<std::string> expected;
  for (int second = 0; second <= 150; ++second) {
    told.now = {Seconds{static_cast<double>(second)}};
    told.log.saved({second, Error{Code::kDiskFailed, "the disk is full", ""}});
    if (second == 10) told.log.trouble("metrics", "1 line of metrics lost");
    if (second % 60 == 0)
      expected.push_back(
          strf("lockstep: step %d is not saved: the disk is full; training continues", second));
    if (second == 10) expected.emplace_back("lockstep: 1 line of metrics lost");
  }
  EXPECT_EQ(lines_of(told.err.str()), expected) << told.err.str();
}

// "1 microbatch", not "1 microbatches".
TEST(TrainLog, OneOfAThingIsSingular) {
  const train::Job job = job_with(
      "layout.dp = 1\nbatch.seq = 1\nbatch.global_batch = 1\nbatch.microbatch = 1\n"
      "train.eval_interval = 1\ntrain.eval_samples = 1");
  const std::string text = LogOf(job, 80).out.str();
  EXPECT_NE(text.find(" 1 sequence of 1 token a step: 1 microbatch of 1\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find(" 1 sequence, looked at every 1 step\n"), std::string::npos) << text;
}

TEST(TrainLog, WarnsOfReductionsOfEveryMicrobatch) {
  const auto beginning = [](const std::string& changes) {
    const train::Job job = job_with(changes);
    std::string text;
    for (const std::string& line : lines_of(LogOf(job, 80).out.str()))
      text += line.substr(std::min<std::size_t>(line.size(), 12));
    return text;
  };
  const std::string warning =
      " zero 2 reduces gradients after every microbatch, 16 times what layout.reduce = \"step\" "
      "sends, which keeps whole gradients for it";
  EXPECT_NE(beginning("layout.zero = 2").find(warning), std::string::npos)
      << beginning("layout.zero = 2");
  for (const char* changes : {"layout.zero = 1", "layout.zero = 2\nlayout.reduce = \"step\"",
                              "layout.zero = 2\nbatch.microbatch = 16"})
    EXPECT_EQ(beginning(changes).find("reduces"), std::string::npos) << changes;
}

// Bytes that malloc has handed out, in all arenas.
std::int64_t live_bytes() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* file = open_memstream(&text, &size);
  malloc_info(0, file);
  std::fclose(file);
  const std::string all(text, size);
  std::free(text);
  const std::size_t totals = all.rfind("</heap>");
  const auto number = [&](const std::string& before) {
    const std::size_t at = all.find(before, totals);
    EXPECT_NE(at, std::string::npos) << before;
    const std::size_t digits = all.find("size=\"", at);
    return std::stoll(all.substr(digits + 6));
  };
  return number("<system type=\"current\"") + number("<total type=\"mmap\"") -
         number("<total type=\"fast\"") - number("<total type=\"rest\"");
}

// Looks at memory whenever a line is flushed.
class Watching : public std::stringbuf {
 public:
  int sync() override {
    seen.push_back(live_bytes());
    return 0;
  }
  std::vector<std::int64_t> seen;
};

TEST(TrainLog, ARunTakesNoMemoryForStepsBehindIt) {
  for (const char* more : {"layout.dp=1", "layout.dp=2"}) {
    Watching watching;
    std::ostream out(&watching);
    std::ostringstream err;
    std::vector<std::string> words = {"train", support::source_dir() + "/examples/tiny.toml",
                                      "--mock-data", "--every", "100"};
    for (const char* change :
         {"model.layers=1", "model.hidden=16", "model.heads=2", "model.kv_heads=1", "model.ffn=16",
          "model.vocab=16", "batch.seq=4", "batch.global_batch=2", "batch.microbatch=1",
          "train.steps=3000", more})
      words.insert(words.end(), {"--set", change});
    const Environment around = {.lookup = [](const std::string&) { return std::nullopt; }};
    EXPECT_EQ(run_lockstep(catalog(), words, around, out, err), ExitCode::kOk) << err.str();
    ASSERT_GE(watching.seen.size(), 31u) << watching.str();  // steps 1, 100, 200, ..., 3000
    // The least of many moments: what the other rank's thread happens to hold at one is no growth.
    // 16 bytes a step are less than any report; malloc's caches of two threads fill by up to 6.
    const auto least = [&](std::size_t from) {
      return *std::min_element(watching.seen.begin() + from, watching.seen.begin() + from + 10);
    };
    EXPECT_LE(least(20) - least(10), 1000 * 16) << more << ": bytes over 1000 steps";
  }
}

}  // namespace
}  // namespace lockstep::cli
#endif
