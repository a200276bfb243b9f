// What `train` and `verify` do on this machine, seen from a shell.
#include <gtest/gtest.h>

#if LOCKSTEP_WITH_TORCH
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "cli/app.h"
#include "cli/verbs.h"
#include "cli/verify/torch/report.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/backends/backends.h"
#include "lockstep/spec/layout.h"
#include "tests/cli/program.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

std::string example() { return support::source_dir() + "/examples/tiny.toml"; }

class Training : public Binary {
 protected:
  // The example for three steps, cut by `settings`; its JSON answer.
  Json train(const std::string& settings, const std::string& more = "") {
    const Ran ran = run("train " + example() + " --mock-data --json --set train.steps=3 " +
                        settings + " " + more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    const Result<Json> json = Json::parse(ran.out);
    EXPECT_TRUE(json.ok()) << ran.out;
    return json.ok() ? *json : Json();
  }

  std::vector<double> losses(const Json& json) {
    std::vector<double> found;
    for (const Json& step : json.find("steps")->items())
      found.push_back(step.find("loss")->as_real());
    return found;
  }
};

// A file that cannot be written must not cost a run.
TEST_F(Training, RefusesFilesItCanNotWriteBeforeItStarts) {
  for (const char* words : {"train --mock-data --trace", "train --mock-data --timeline",
                            "calibrate --seconds 1 --out"}) {
    const Ran ran = run(std::string(words) + " no/such/folder/file " + example());
    EXPECT_EQ(ran.code, 3) << words;
    EXPECT_EQ(ran.out, "") << words;
    EXPECT_NE(ran.err.find("cannot write `no/such/folder/file`"), std::string::npos) << ran.err;
  }
}

// Never a run on the CPU that was asked for on a device.
TEST_F(Training, RefusesDevicesThatThisBuildHasNot) {
  const auto expect = [&](const std::string& words, const std::string& why) {
    const Ran ran = run(words + " " + example() + " --set device.kind=cuda");
    EXPECT_EQ(ran.code, 3) << words;
    EXPECT_NE(ran.err.find(why), std::string::npos) << ran.err;
  };
  if (comm::backend_for(DeviceKind::kCuda) == nullptr)
    for (const char* verb : {"train --mock-data", "train --mock-data --processes", "verify"})
      expect(verb, "this build has no backend for devices of kind cuda");
  expect("calibrate", "device.kind = cuda, and `lockstep calibrate` runs on CPUs alone");
}

// Every layout of two ranks has its calibration, and one of them is chosen.
TEST_F(Training, PlansWithWhatThisMachineMeasured) {
  const std::string ranks = std::to_string(std::clamp(std::thread::hardware_concurrency(), 1U, 2U));
  const std::string run_file = example() +
                               " --set model.layers=2 --set batch.seq=16 "
                               "--set batch.global_batch=2 --set batch.microbatch=1";
  const std::string measure = "calibrate " + run_file + " --all --seconds 1 --json --ranks ";
  const Ran made = run(measure + ranks + " --out new/cals");
  ASSERT_EQ(made.code, 0) << made.err;
  std::vector<std::string> names;
  const Json files = *Json::parse(made.out)->find("files");
  for (const Json& file : files.items()) names.push_back(file.find("file")->as_text());
  if (ranks == "2") {
    EXPECT_EQ(names, (std::vector<std::string>{"mb2-tp1.json", "mb2-tp1-selective.json",
                                               "mb2-tp2.json", "mb2-tp2-selective.json",
                                               "mb1-tp1.json", "mb1-tp1-selective.json",
                                               "mb1-tp2.json", "mb1-tp2-selective.json"}));
  }
  const Ran planned = run("plan " + run_file + " --calibration new/cals --json");
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_EQ(planned.out.find("for want of a calibration"), std::string::npos);
  const Json json = Json::parse(planned.out).value();
  EXPECT_GT(json.find("plans")->items()[0].find("step_s")->find("total")->as_real(), 0);

  const auto refused = [&](const std::string& words, int code, const std::string& says) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, code) << words;
    EXPECT_NE(ran.err.find(says), std::string::npos) << words << "\n" << ran.err;
  };
  write("file", "");
  write("new/cals/old.json", "");
  refused(measure + "1 --out file", 3, "cannot make the directory `file`: not a directory");
  refused(measure + ranks + " --out new/cals", 2, "`new/cals` holds old.json");
  refused(measure + "65536 --out other", 3, "--ranks 65536 cannot be busy at once");
  refused("calibrate --ranks 2 " + example(), 2, "--ranks is for --all");
  EXPECT_FALSE(std::filesystem::exists(dir_ / "other"));
}

// A plan for two ranks of this machine's kind runs as it was planned.
TEST_F(Training, ExecutesAPlan) {
  const std::string plan = "plan " + example() + " --cluster cluster.toml ";
  write("cluster.toml", "devices = 2\n[device]\nbase = \"cpu-gloo\"\nmemory = \"32 GB\"\n");
  for (const char* what : {"--runnable --schedules 1f1b", "--layout pp=2,zero=0,schedule=zb-h1"}) {
    const Ran planned = run(plan + what + " -o plan.json --json");
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Json row = Json::parse(planned.out)->find("plans")->items()[0];
    const Json ran = train("", "--plan plan.json");
    EXPECT_EQ(ran.find("ranks")->as_int(), 2);
    spec::Layout chosen = spec::parse_layout(row.find("name")->as_text()).value();
    chosen.microbatches.reset();  // a run file says how large they are
    EXPECT_EQ(ran.find("layout")->as_text(), to_text(chosen));
    for (const Json& step : ran.find("steps")->items()) {
      EXPECT_EQ(step.find("peak_bytes")->as_int(), ran.find("predicted_peak_bytes")->as_int());
      EXPECT_EQ(step.find("sent_bytes")->as_int(), ran.find("predicted_sent_bytes")->as_int());
    }
  }
  const Ran other =
      run("train " + example() + " --mock-data --plan plan.json --set batch.global_batch=64");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("is for batch.global_batch = 32, but "), std::string::npos) << other.err;
}

constexpr const char* kFourRanks[][2] = {
    {"--set layout.pp=2 --set layout.dp=2 --set layout.zero=3 --set layout.reduce=step",
     "--set layout.dp=2 --set layout.zero=0"},
    {"--set layout.tp=2 --set layout.pp=2 --set layout.zero=1",
     "--set layout.tp=2 --set layout.recompute=full"}};

TEST_F(Training, OnThreadsAndOnProcessesIsTheSameAndAsPredicted) {
  for (const auto& [four_ranks, same_class] : kFourRanks) {
    const Json threads = train(four_ranks), processes = train(four_ranks, "--processes");
    EXPECT_EQ(losses(threads), losses(processes));
    EXPECT_EQ(threads.find("ranks")->as_int(), 4);
    for (const Json* json : {&threads, &processes})
      for (const Json& step : json->find("steps")->items()) {
        EXPECT_EQ(step.find("peak_bytes")->as_int(), json->find("predicted_peak_bytes")->as_int());
        EXPECT_EQ(step.find("sent_bytes")->as_int(), json->find("predicted_sent_bytes")->as_int());
      }
    // The same tensor and data degree and microbatch, so the same bits.
    EXPECT_EQ(losses(threads), losses(train(same_class)));
  }
}

// In f32 the same microbatch gives the same bits where no tensor ranks cut it.
TEST_F(Training, TellsTheNoiseScaleWhenAsked) {
  const std::string ask = "--set train.noise_scale=2 ";
  const Json alone = train(ask), copies = train(ask + "--set layout.dp=2 --set layout.zero=2");
  for (std::size_t i = 0; i < 3; ++i) {
    const Json &one = alone.find("steps")->items()[i], &two = copies.find("steps")->items()[i];
    EXPECT_GT(one.find("noise_scale")->as_real(), 0);
    EXPECT_EQ(one.find("first_tokens")->as_int(), 256);
    EXPECT_EQ(two.find("first_tokens")->as_int(), 256);
    if (i > 0) continue;  // then the copies' sums have rounded otherwise
    EXPECT_EQ(one.find("first_grad_norm")->as_real(), two.find("first_grad_norm")->as_real());
  }
  EXPECT_EQ(train("").find("steps")->items()[0].find("noise_scale"), nullptr);
  const Ran ran = run("train " + example() + " --mock-data --set train.steps=1 " + ask);
  EXPECT_NE(ran.out.find("  grad norm  noise scale     time"), std::string::npos) << ran.out;
}

// With processes the signal goes to the parent alone, which passes it on.
TEST_F(Training, EndsAfterAStepWhenAsked) {
  const std::vector<std::string> words = {
      "train", example(), "--mock-data", "--set", "train.steps=1000000", "--set", "layout.dp=2"};
  std::vector<std::string> with_processes = words;
  with_processes.emplace_back("--processes");
  const std::pair<std::vector<std::string>, int> cases[] = {{words, SIGINT},
                                                            {with_processes, SIGTERM}};
  for (const auto& [own, number] : cases) {
    Running job(own);
    ASSERT_TRUE(job.wait_for("tokens/s"));
    job.signal(SIGUSR1);  // may come any number of times
    job.signal(number);
    const Ran ran = job.finish();
    EXPECT_EQ(ran.code, 143) << ran.out;
    EXPECT_NE(ran.out.find("\nstopped as asked, after "), std::string::npos) << ran.out;
  }
}

TEST_F(Training, IsGivenUpWhenARankIsLost) {
  Running job({"train", example(), "--mock-data", "--set", "train.steps=1000000", "--set",
               "layout.dp=2", "--processes"});
  ASSERT_TRUE(job.wait_for("tokens/s"));
  job.signal_child(SIGKILL);
  const Ran ran = job.finish();
  EXPECT_EQ(ran.code, 4) << ran.out;
  EXPECT_NE(ran.out.find(" was ended by signal 9 (Killed)"), std::string::npos) << ran.out;
}

TEST_F(Training, OfWhatDivergesFails) {
  const Ran ran = run("train " + example() +
                      " --mock-data --set train.lr=1000 --set train.clip=0 --set train.warmup=0");
  EXPECT_EQ(ran.code, 4) << ran.out << ran.err;
  EXPECT_NE(ran.err.find("error[LS0701]: loss or gradient norm of step "), std::string::npos)
      << ran.err;
  const Ran skipping = run("train " + example() +
                           " --mock-data --set train.lr=1000 --set train.clip=0 --set "
                           "train.warmup=0 --set train.on_nonfinite=skip");
  EXPECT_EQ(skipping.code, 4) << skipping.out << skipping.err;
  EXPECT_NE(skipping.err.find("of 11 steps in a row is not finite"), std::string::npos)
      << skipping.err;
  EXPECT_NE(skipping.out.find("not finite: this step changed nothing\n"), std::string::npos)
      << skipping.out;
}

// Evaluations cost what was predicted, and come every so often and at the end.
TEST_F(Training, LooksAtHeldOutSamples) {
  for (const char* layout : {"--set layout.pp=2 --set layout.dp=2 --set layout.zero=2",
                             "--set layout.tp=2 --set layout.dp=2 --set layout.zero=3"}) {
    const Json json = train(std::string(layout) + " --set train.eval_interval=2");
    const auto& found = json.find("evaluations")->items();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].find("step")->as_int(), 2);
    EXPECT_EQ(found[1].find("step")->as_int(), 3);
    EXPECT_LT(found[1].find("loss")->as_real(), found[0].find("loss")->as_real());
    for (const Json& one : found) {
      EXPECT_EQ(one.find("peak_bytes")->as_int(), json.find("predicted_eval_peak_bytes")->as_int());
      EXPECT_EQ(one.find("sent_bytes")->as_int(), json.find("predicted_eval_sent_bytes")->as_int());
    }
  }
}

// In this process: starting the program loads LibTorch each time.
TEST(Refused, IsWhatCanNotBeMeant) {
  struct Case {
    std::vector<std::string> words;
    ExitCode code;
    std::string says;
  };
  const std::string file = example();
  const auto set = [&](const std::string& assignment) {
    return std::vector<std::string>{"train", file, "--mock-data", "--set", assignment};
  };
  const auto layouts = [](const std::string& names) {
    return std::vector<std::string>{"verify", "--layouts", names};
  };
  constexpr ExitCode kUsage = ExitCode::kUsage, kEnvironment = ExitCode::kEnvironment;
  const Case cases[] = {
      {{"train", file}, kUsage, "error[LS0105]: `data.files` is missing"},
      {{"train", "missing.toml", "--mock-data"}, kEnvironment, "error[LS0004]"},
      {{"train", "--mock-data"}, kUsage, "there is nothing to train: name a run file"},
      {{"train", file, "--every", "0"}, kUsage, "--every must be at least 1"},
      {set("layout.tp=8"), kUsage, "tp = 8 does not divide the 4 heads of tiny"},
      {set("train.dtype=fp16"), kUsage, "it needs loss scaling"},
      {set("layout.dp=5"), kUsage, "error[LS0203]"},
      {set("layout.dp=16"), kUsage, "error[LS0203]"},
      {set("train.lr=1e6"), kUsage, "`train.lr` must be above 0 and at most 1000"},
      {layouts("pp10 dp2"), kUsage, "pp = 10 needs 10 layers"},
      {layouts("pp2; zero9"), kUsage, "the nearest: `zero3`"},
      {layouts(""), kUsage, "a layout needs at least one word"},
      {layouts(" "), kUsage, "a layout needs at least one word"},
      {layouts(";"), kUsage, "a layout needs at least one word"},
      {layouts("dp2 m3"), kUsage, "m = 3"},
      {{"verify", "--layouts", "pp2; dp4", "--processes"}, kUsage, "one number of ranks only"},
      {{"verify", "--model", "llama3-8b"}, kUsage, "8,030,261,248 parameters"},
      {{"verify", "--model", "deepseek-v3", "--shrink"}, kUsage, "family = deepseek"},
      {{"verify", "--dtype", "f16"}, kUsage, "--dtype has no choice `f16`"},
      {{"verify", "--labels", "two"}, kUsage, "--labels has no choice `two`"},
      {{"verify", "--routing", "last"}, kUsage, "--routing last steers by selection biases"},
      {{"verify", "--part", "3/2"}, kUsage, "--part 3/2 is no part of a whole"},
      {{"verify", "--part", "1/2/3"}, kUsage, "--part 1/2/3 is no part of a whole"},
      {{"verify", "--layouts", "pp2; dp4", "--part", "1/3"}, kUsage, "2 layouts in 3 parts"},
      {{"verify", "--ranks", "65"}, kUsage, "--ranks must be"},
      {{"verify", file, "--set", "layout.dp=128", "--set", "batch.global_batch=512"},
       kUsage,
       "at most 64 can be verified"},
  };
  for (const Case& c : cases) {
    std::ostringstream out, err;
    const Environment nothing = {.lookup = [](const std::string&) { return std::nullopt; }};
    EXPECT_EQ(run_lockstep(catalog(), c.words, nothing, out, err), c.code) << c.says << err.str();
    EXPECT_NE(err.str().find(c.says), std::string::npos) << c.says << "\n" << err.str();
    EXPECT_EQ(out.str(), "");
  }
}

TEST_F(Training, AsARankNeedsTheWholeEnvironment) {
  const std::string command = "train " + example() + " --mock-data";
  const Ran lone = run(command, "RANK=0");
  EXPECT_EQ(lone.code, 3);
  EXPECT_NE(lone.err.find("WORLD_SIZE is not set"), std::string::npos) << lone.err;
  const Ran wrong = run(command, "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("but the world has 2 ranks"), std::string::npos) << wrong.err;
}

TEST_F(Training, IsVerifiedOverProcessesAsOverThreads) {
  std::vector<std::string> digests;
  for (const char* how : {"", "--processes"}) {
    const Ran ran =
        run("verify --layouts \"tp2 dp2 zero3 m2 mb; tp2 dp2 zero1 gpipe m2 mb\" --json " +
            std::string(how));
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    const Result<Json> json = Json::parse(ran.out);
    ASSERT_TRUE(json.ok()) << ran.out;
    EXPECT_EQ(json->find("schema")->as_text(), "lockstep.verify/1");
    EXPECT_EQ(json->find("layouts")->as_int(), 2);
    EXPECT_EQ(json->find("failed")->as_int(), 0);
    EXPECT_EQ(json->find("classes")->as_int(), 1);
    for (const Json& row : json->find("rows")->items()) {
      digests.push_back(row.find("digest")->as_text());
      EXPECT_EQ(row.find("peak_bytes")->as_int(), row.find("predicted_peak_bytes")->as_int());
      EXPECT_TRUE(row.find("failure")->is_null());
    }
  }
  EXPECT_EQ(digests, std::vector<std::string>(4, digests[0]));
}

TEST_F(Training, OfARunFileIsVerifiedOnASmallModelOfItsKind) {
  write("run.toml",
        "model.name = \"llama3-8b\"\nlayout = { tp = 4, pp = 2, zero = 3 }\n"
        "batch = { seq = 8192, global_batch = 128 }\n");
  const Ran ran = run("verify run.toml --shrink --steps 1");
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_TRUE(ran.out.starts_with("1 layout on 8 ranks, 1 step, f64\n")) << ran.out;
  EXPECT_NE(ran.out.find("llama3-8b-small"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("every byte sent as predicted"), std::string::npos) << ran.out;
}

// Eight layers are left of 32, two on each stage.
TEST_F(Training, OfCountedBlocksIsVerifiedOnAsManyAsAreLeft) {
  write("run.toml",
        "model.name = \"llama3-8b\"\nbatch = { seq = 8192, global_batch = 128 }\n"
        "layout = { pp = 4, recompute = \"selective+full:7+3+1+0\" }\n");
  const Ran ran = run("verify run.toml --shrink --steps 1 --verbose");
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_NE(ran.out.find("recompute=selective+full:2x2+1+0 "), std::string::npos) << ran.out;
}

// Nothing in the tree fails, so a verdict is made up.
// A free run in bf16 always comes near what AdamW can reach, so that is no bound to be near to: the
// worst is the step nearest to its own.
TEST(VerifyReport, NarrowTypesAreNearTheBoundOfAStepAndNoOther) {
  VerifyRequest request;
  request.spec.train.dtype = DType::kBF16;
  request.layouts.resize(2);
  request.ranks = {"2"};
  std::ostringstream out, err;
  Output output{.out = out, .err = err};
  VerifyReport report(request, {"threads", true}, {}, output);
  report.add({.name = "dp2 zero0 step",
              .step_error = 2e-6,
              .run_error = 0.5,
              .bounds = {.step = 8e-6, .run = 1, .far = 0.01},
              .where = "blocks.1.mlp.up.weight"});
  report.add({.name = "dp2 zero3 step",
              .step_error = 1e-6,
              .run_error = 0.999,
              .bounds = {.step = 8e-6, .run = 1, .far = 0.01},
              .where = "blocks.0.attn.q.weight"});
  report.conclude(Seconds{1});
  for (const char* text : {" 25 % of its bound: blocks.1.mlp.up.weight of dp2 zero0 step\n",
                           " at most 2.0e-06 in the gradients of a step, 1.0e+00 of how far"})
    EXPECT_NE(out.str().find(text), std::string::npos) << text << "\n" << out.str();
}

// What is printed of a run is what its numbers say.
TEST_F(Training, InBf16IsFarBelowTheBoundOfAStepAndVerifySaysHowFar) {
  const std::string words =
      "verify " + example() + " --dtype bf16 --layouts \"dp2 zero1\" --steps 2";
  const Result<Json> json = Json::parse(run(words + " --json").out);
  ASSERT_TRUE(json.ok());
  const Json& row = json->find("rows")->items().at(0);
  const double share = row.find("step_error")->as_real() / row.find("step_bound")->as_real();
  EXPECT_GT(share, 0);
  EXPECT_LE(share, 0.1);
  const Ran told = run(words);
  EXPECT_EQ(told.code, 0) << told.err;
  const std::string text = strf(" %.2g %% of its bound: ", 100 * share) +
                           row.find("where")->as_text() + " of " + row.find("name")->as_text();
  EXPECT_NE(told.out.find(text), std::string::npos) << text << "\n" << told.out;
}

TEST(VerifyReport, NamesWhatFailed) {
  VerifyRequest request;
  request.spec.train.dtype = DType::kF64;
  request.spec.train.steps = 3;
  request.layouts.resize(2);
  request.ranks = {"1"};
  std::ostringstream out, err;
  Output output{.out = out, .err = err};
  VerifyReport report(request, {"threads", true}, {}, output);
  report.add({.name = "dp1 zero0 step", .bounds = {1e-12, 1e-10}, .bits_class = "a"});
  report.add({.name = "dp1 zero3 step",
              .step_error = 0.5,
              .bounds = {1e-12, 1e-10},
              .where = "blocks.0.attn.q.weight",
              .failure = "gradient of blocks.0.attn.q.weight differs by 0.5 in step 1",
              .bits_class = "a",
              .as_predicted = false});
  report.conclude(Seconds{1});
  EXPECT_EQ(report.failed(), 1);
  for (const char* text :
       {"  FAILED  dp1 zero3 step\n          gradient of blocks.0.attn.q.weight differs by 0.5",
        ": blocks.0.attn.q.weight of dp1 zero3 step\n", "as predicted in 1 of 2 layouts\n",
        "\n1 of 2 layouts failed in 1 s\n"})
    EXPECT_NE(out.str().find(text), std::string::npos) << text << "\n" << out.str();
}

}  // namespace
}  // namespace lockstep::cli
#endif
