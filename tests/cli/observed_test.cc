// `plan --observed`: times follow runs that the user timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

const std::string kLayout = "tp1 pp1 dp64 zero3 microbatch=1 recompute=full";

class PlanObserved : public testing::Test {
 protected:
  void write(const std::string& text) { ASSERT_TRUE(write_text(file_, text).ok()); }

  Answer plan(std::vector<std::string> more, bool observed = true) {
    std::vector<std::string> words = {"plan",  "--model", "llama3-8b",      "--cluster", "h100:64",
                                      "--seq", "8192",    "--global-batch", "512"};
    if (observed) words.insert(words.end(), {"--observed", file_});
    words.insert(words.end(), more.begin(), more.end());
    return answer(plan_verb(), words, 0);
  }

  Json json(std::vector<std::string> more, bool observed = true) {
    more.emplace_back("--json");
    const Answer ran = plan(std::move(more), observed);
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
    return *Json::parse(ran.out);
  }

  // Seconds that --layout says without runs.
  double predicted(const std::string& layout) {
    return json({"--layout", layout}, false)
        .find("plans")
        ->items()
        .front()
        .find("step_s")
        ->find("total")
        ->as_real();
  }

  std::string refused(const std::string& text) {
    write(text);
    const Answer ran = plan({});
    EXPECT_NE(ran.code, ExitCode::kOk);
    EXPECT_NE(ran.code, ExitCode::kBug);
    return ran.err;
  }

  // Lines as Megatron-LM prints them, of which the first two warm up.
  void log(const std::string& name, double seconds, double tflops, int batch) {
    std::string text;
    for (const double factor : {9.0, 2.0, 1.1, 1.0, 0.9})
      text += strf(
          " iteration 1/ 9 | elapsed time per iteration (ms): %.1f | throughput per GPU "
          "(TFLOP/s/GPU): %.1f | global batch size: %5d |\n",
          1000 * factor * seconds, tflops, batch);
    ASSERT_TRUE(write_text(file_ + name, text).ok());
  }

  // Notes that the page ends with.
  std::vector<std::string> notes(const Json& found) {
    std::vector<std::string> texts;
    for (const Json& note : found.find("warnings")->items()) texts.push_back(note.as_text());
    return texts;
  }

  std::string file_ = (std::filesystem::temp_directory_path() /
                       testing::UnitTest::GetInstance()->current_test_info()->name())
                          .string() +
                      ".csv";
};

// A run that took half as long again: the same layout does, and all that follows from its time.
TEST_F(PlanObserved, TimesFollowALoneRun) {
  const double before = predicted(kLayout);
  write(strf("layout,step_s\n%s,%.6f\n", kLayout.c_str(), 1.5 * before));
  const Json found = json({"--layout", kLayout, "--tokens", "1e12", "--price", "2"});
  const Json& row = found.find("plans")->items().front();
  const double after = row.find("step_s")->find("total")->as_real();
  EXPECT_NEAR(after / before, 1.5, 0.05);
  EXPECT_EQ(row.find("step_s")->find("p50")->as_real(), after);
  EXPECT_GT(row.find("step_s")->find("p95")->as_real(), 1.05 * after);
  EXPECT_NEAR(row.find("tokens_per_s")->as_real(), 512 * 8192 / after, 1);
  const Json plain = json({"--layout", kLayout, "--tokens", "1e12", "--price", "2"}, false);
  const Json& was = plain.find("plans")->items().front();
  const double factor = after / before;
  EXPECT_NEAR(row.find("run")->find("money")->as_real(),
              factor * was.find("run")->find("money")->as_real(), 1e-3);
  EXPECT_NEAR(row.find("mfu")->find("causal")->as_real() * factor,
              was.find("mfu")->find("causal")->as_real(), 1e-9);
  EXPECT_EQ(found.find("observed")->find("runs")->items().size(), 1U);
  EXPECT_FALSE(found.find("observed")->find("runs")->items()[0].find("contradicts")->as_bool());
}

TEST_F(PlanObserved, NamesTheRowThatContradicts) {
  std::string text = "layout,step_s,global_batch\n";
  for (const int batch : {128, 256, 384, 512, 512})
    text += strf("%s,%.6f,%d\n", kLayout.c_str(),
                 predicted(kLayout) * batch / 512 * (batch == 256 ? 3 : 1.1), batch);
  write(text);
  const Answer ran = plan({});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_NE(ran.out.find("line 3 contradicts"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("line 2 contradicts"), std::string::npos) << ran.out;
}

// Cells of a row are its own: another model, cluster and batch.
TEST_F(PlanObserved, RowsMayBeOfOtherModels) {
  write("layout,step_s,model,cluster,seq,global_batch,dtype\n" + kLayout +
        ",4,llama3-8b,h100:64,4096,256,fp8\n"
        "\"tp=8,pp=2,zero=1,schedule=1f1b,microbatch=1\",9,llama3-70b,h100:128,8192,64,\n"
        "tp1 pp1 ep8 zero1 microbatch=1 recompute=full,9,mixtral-8x7b,h100:64,4096,512,\n");
  const Json found = json({});
  const auto& runs = found.find("observed")->find("runs")->items();
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_NE(runs[1].find("layout")->as_text().find("tp8"), std::string::npos);
  EXPECT_GT(runs[1].find("predicted_s")->as_real(), 0);
}

TEST_F(PlanObserved, RefusesWithLineAndColumn) {
  EXPECT_NE(refused("layout,step\n").find("`step`"), std::string::npos);
  EXPECT_NE(refused("layout\n" + kLayout + "\n").find("`step_s` is missing"), std::string::npos);
  const auto row = [&](const std::string& cells) { return refused("layout,step_s,seq\n" + cells); };
  EXPECT_NE(row(kLayout + ",-1,\n").find("line 2: column step_s"), std::string::npos);
  EXPECT_NE(row("\n" + kLayout + ",nan,\n").find("line 3: column step_s"), std::string::npos);
  EXPECT_NE(row(kLayout + ",4,8k\n").find("column seq: `8k`"), std::string::npos);
  EXPECT_NE(row(kLayout + ",4\n").find("2 cells"), std::string::npos);
  EXPECT_NE(row("tp1 pp1,4,\n").find("does not say zero"), std::string::npos);
  EXPECT_NE(row("tp1 pp1 zero1,4,\n").find("does not say microbatch"), std::string::npos);
  EXPECT_NE(row("tp2 pp2 zero1 microbatch=1,4,\n").find("its schedule"), std::string::npos);
  EXPECT_NE(row("tp3 pp1 zero1 microbatch=1,4,\n").find("line 2: column layout"),
            std::string::npos);
  EXPECT_NE(row("tp0 pp1 zero1 microbatch=1,4,\n").find("line 2: column layout"),
            std::string::npos);
  EXPECT_NE(row("tp1 dp7 zero1 microbatch=1,4,\n").find("line 2: column layout"),
            std::string::npos);
  EXPECT_NE(row(kLayout + ",9000,\n").find("line 2: column step_s: 9000 s, where"),
            std::string::npos);  // milliseconds
  EXPECT_NE(refused("layout,step_s,model\n" + kLayout + ",4,llama9\n").find("column model"),
            std::string::npos);
  EXPECT_NE(refused("layout,step_s,cluster\n" + kLayout + ",4,h100:x\n").find("column cluster"),
            std::string::npos);
  EXPECT_NE(refused("layout,step_s\n").find("no runs"), std::string::npos);
}

TEST_F(PlanObserved, RefusesWhatCannotBe) {
  const double before = predicted(kLayout);
  const std::string fast = refused(strf("layout,step_s\n%s,%.6f\n", kLayout.c_str(), before / 5));
  EXPECT_NE(fast.find("% of the peak of h100"), std::string::npos) << fast;
  EXPECT_NE(refused("layout,step_s,memory_gib\n" + kLayout + ",9,40\n").find("column memory_is"),
            std::string::npos);
  std::string many = "layout,step_s\n";
  for (int i = 0; i < 100; ++i) many += kLayout + ",-1\n";
  const std::string said = refused(many);
  EXPECT_NE(said.find("line 9: column step_s"), std::string::npos);
  EXPECT_EQ(said.find("line 12"), std::string::npos);
  EXPECT_NE(said.find("is not read further"), std::string::npos);
}

TEST_F(PlanObserved, ReadsLogsBesideTheFile) {
  const double before = predicted(kLayout);
  const std::string row = kLayout + "," + std::filesystem::path(file_).filename().string();
  log(".a", 1.5 * before, 256, 512);
  write("layout,log\n" + row + ".a\n");
  const Json found = json({"--layout", kLayout});
  const Json& run = found.find("observed")->find("runs")->items().front();
  EXPECT_NEAR(run.find("measured_s")->as_real(), 1.5 * before, 1e-4);
  EXPECT_EQ(run.find("global_batch")->as_int(), 512);
  EXPECT_NE(refused("layout,log,step_s\n" + row + ".a,4\n").find("the log says it, too"),
            std::string::npos);
  EXPECT_NE(refused("layout,log,global_batch\n" + row + ".a,256\n").find("says 512"),
            std::string::npos);
  log(".b", 1.5 * before, 2560, 512);
  EXPECT_NE(refused("layout,log\n" + row + ".b\n").find("it counts 2560 TFLOP/s"),
            std::string::npos);
  EXPECT_NE(refused("layout,log\n" + row + ".none\n").find("line 2: "), std::string::npos);
  // torchtitan tells tokens of a device in a second.
  std::string titan;
  for (int i = 0; i < 6; ++i)
    titan += strf(
        "step: %2d  loss: 7.0  memory: 47.62GiB(60.20%%)  tps: 5,000  tflops: 289.00  "
        "mfu: 29.2%%\n",
        i);
  ASSERT_TRUE(write_text(file_ + ".c", titan).ok());
  write("layout,log\n" + row + ".c\n");
  const Json told = json({});
  const Json& read = told.find("observed")->find("runs")->items().front();
  EXPECT_DOUBLE_EQ(read.find("measured_s")->as_real(), 512.0 * 8192 / (5000 * 64));
  EXPECT_DOUBLE_EQ(read.find("memory_gib")->as_real(), 47.62);
  EXPECT_EQ(read.find("memory_is")->as_text(), "reserved");
  EXPECT_GT(read.find("predicted_gib")->as_real(), 1);
}

// One file says it all, of a model that is known by name; the sizes have to be its own.
TEST_F(PlanObserved, ReadsMetricsOfARun) {
  const double before = predicted("tp1 pp1 dp64 zero3 microbatch=1");
  const auto metrics = [&](const char* parameters) {
    std::string text = strf(
        R"({"event":"start","step":0,"model":"llama3-8b","parameters":%s,"layout":"dp64 zero3",)"
        R"("seq":8192,"global_batch":512,"microbatch":1,"dtype":"bf16","cluster":"h100:64"})"
        "\n",
        parameters);
    for (int i = 1; i < 7; ++i)
      text += strf(R"({"event":"step","step":%d,"samples":%d,"seconds":%.17g})"
                   "\n",
                   i, 512 * i, 1.3 * before);
    return text;
  };
  write(metrics("8030261248"));
  const Json found = json({"--layout", "tp1 pp1 dp64 zero3 microbatch=1"});
  const Json& run = found.find("observed")->find("runs")->items().front();
  EXPECT_EQ(run.find("measured_s")->as_real(), 1.3 * before);
  EXPECT_EQ(run.find("predicted_s")->as_real(), before);
  EXPECT_NE(refused(metrics("229952")).find("229952 parameters, but llama3-8b has 8030261248"),
            std::string::npos);
}

// Two runs of one layout that took once as long and twice: both are named.
TEST_F(PlanObserved, NamesTwoThatContradictEachOther) {
  const double before = predicted(kLayout);
  write(strf("layout,step_s\n%s,%.6f\n%s,%.6f\n", kLayout.c_str(), before, kLayout.c_str(),
             2 * before));
  const Json found = json({});
  for (const Json& run : found.find("observed")->find("runs")->items())
    EXPECT_TRUE(run.find("contradicts")->as_bool());
}

TEST_F(PlanObserved, SumsManyRunsUp) {
  const double before = predicted(kLayout);
  std::string text = "layout,step_s\n";
  for (int i = 0; i < 60; ++i)
    text += strf("%s,%.6f\n", kLayout.c_str(), before * (i % 3 == 0 ? 2.5 : 1.1));
  write(text);
  const std::vector<std::string> said = notes(json({}));
  EXPECT_LE(said.size(), 9U);
  EXPECT_TRUE(std::ranges::any_of(said, [](const std::string& note) {
    return note.find("18 other runs contradict, too: lines 8, 11") != std::string::npos;
  }));
}

TEST_F(PlanObserved, TellsTheParts) {
  const std::vector<std::string> layouts = {"tp1 pp1 dp64 zero3 microbatch=1 recompute=full",
                                            "tp8 pp1 dp8 zero1 microbatch=1",
                                            "tp4 pp1 dp16 zero1 microbatch=1"};
  std::string text = "layout,step_s\n";
  for (const std::string& layout : layouts)
    text += strf("%s,%.6f\n", layout.c_str(),
                 predicted(layout) * (layout.starts_with("tp1") ? 1.0 : 1.3));
  write(text);
  const std::vector<std::string> said = notes(json({}));
  EXPECT_TRUE(std::ranges::any_of(said, [](const std::string& note) {
    return note.starts_with("tensor 1.") && note.find("; from line 3") != std::string::npos;
  })) << said.front();
}

// What was learned, written and read: the same answer to the last bit, also to another question.
TEST_F(PlanObserved, LearnedIsReadBack) {
  write("layout,step_s,model,cluster,seq,global_batch,dtype,memory_gib,memory_is\n" + kLayout +
        ",12,,,,,,30.1,reserved\n" + kLayout +
        ",4,llama3-8b,h100:64,4096,256,fp8,,\n"
        "\"tp=8,pp=3,zero=1,schedule=1f1b,microbatch=1\",9,llama3-70b,h100:240,8192,60,,,\n"
        "\"tp=2,pp=4,vpp=2,zero=1,schedule=interleaved,microbatch=1\",9,,,,,,,\n"
        "tp1 pp1 ep8 zero1 microbatch=1 recompute=full,9,mixtral-8x7b,h100:64,4096,512,,,\n");
  const std::string rows = file_, learned = file_ + ".json";
  const Json first = json({"--learned", learned});
  file_ = learned;
  const Json again = json({});
  for (const char* key : {"plans", "warnings", "observed"})
    EXPECT_EQ(*first.find(key), *again.find(key)) << key;
  EXPECT_EQ(json({"--dtype", "fp8"}).find("observed")->dump(), first.find("observed")->dump());
  std::string text = *read_text(learned);
  const std::size_t at = text.find("\"measured_s\": 12.0");
  ASSERT_NE(at, std::string::npos);
  EXPECT_NE(refused(text.replace(at, 18, "\"measured_s\": 12.5")).find("no longer teach"),
            std::string::npos);
  EXPECT_NE(refused("{}").find("not what `plan --learned` writes"), std::string::npos);
  file_ = rows;
  EXPECT_EQ(plan({"--learned", rows}).code, ExitCode::kUsage);
  EXPECT_EQ(plan({"--learned", learned}, false).code, ExitCode::kUsage);
}

TEST_F(PlanObserved, RefusesTimesItCannotCorrect) {
  write("layout,step_s\n" + kLayout + ",4\n");
  for (const auto& more :
       std::vector<std::vector<std::string>>{{"--explain"},
                                             {"--what-if", "network=2x"},
                                             {"--report", file_ + ".html"},
                                             {"--compare", "b200:8"},
                                             {"--tokens", "1T", "--target-days", "30"},
                                             {"--tokens", "1T", "--price", "2", "--max-cost", "9"},
                                             {"--for", "megatron"},
                                             {"--emit", "megatron"}}) {
    const Answer ran = plan(more);
    EXPECT_EQ(ran.code, ExitCode::kUsage);
    EXPECT_NE(ran.err.find("--observed"), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace lockstep::cli
