#include "lockstep/train/run_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/train/families.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

TEST(RunMetrics, LinesReadBackToTheSameBits) {
  const std::string folder = testing::TempDir() + "run_metrics";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const Job job = job_of(tiny_spec(false, DType::kF32), "dp1");
  RunMetrics metrics(job, {.directory = folder});
  metrics.begins({}, false);
  StepReport report;
  report.loss = 0.1 + 0.2;
  report.grad_norm = std::nextafter(1.0, 2.0);
  report.tokens = 2048;
  report.time = {0.5};
  report.noise_scale = 1e9;
  metrics.step(6, report, {});
  report.updated = false;
  report.loss = NAN;
  report.noise_scale.reset();
  metrics.step(7, report, {});
  EvalReport eval;
  eval.loss = std::log(20.0);
  metrics.evaluation(7, eval);

  std::vector<Json> lines;
  std::ifstream file(metrics_path(folder));
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line).value());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].find("event")->as_text(), "start");
  EXPECT_EQ(lines[0].find("global_batch")->as_int(), job.spec.batch.global_batch);
  EXPECT_EQ(lines[0].find("microbatch")->as_int(), job.spec.batch.microbatch);
  EXPECT_EQ(lines[0].find("seq")->as_int(), job.spec.batch.seq);
  EXPECT_EQ(lines[1].find("event")->as_text(), "step");
  EXPECT_EQ(lines[1].find("step")->as_int(), 7);
  EXPECT_EQ(lines[1].find("samples")->as_int(), 7 * 16);
  EXPECT_EQ(lines[1].find("loss")->as_real(), 0.1 + 0.2);
  EXPECT_EQ(lines[1].find("grad_norm")->as_real(), std::nextafter(1.0, 2.0));
  EXPECT_EQ(lines[1].find("tokens_per_second")->as_real(), 4096);
  EXPECT_EQ(lines[1].find("noise_scale")->as_real(), 1e9);
  EXPECT_EQ(lines[2].find("event")->as_text(), "skip");
  EXPECT_EQ(lines[2].find("noise_scale"), nullptr);
  EXPECT_EQ(lines[2].find("loss")->as_text(), "NaN");
  EXPECT_EQ(lines[3].find("event")->as_text(), "eval");
  EXPECT_DOUBLE_EQ(lines[3].find("perplexity")->as_real(), 20);
  std::filesystem::remove_all(folder);
}

// Two blocks of five experts, of which the second has three without tokens.
TEST(RunMetrics, TellsHowEvenExpertsAre) {
  const std::string folder = testing::TempDir() + "run_metrics_experts";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  spec::Spec spec = mixtral_spec();
  spec.train.moe_z_loss_coeff = 0;
  const Job job = job_of(spec, "dp1");
  RunMetrics metrics(job, {.directory = folder});
  metrics.begins({}, false);
  StepReport report;
  report.expert_tokens = {4, 4, 4, 4, 4, 0, 16, 0, 4, 0};
  report.aux_loss = 0.25;
  metrics.step(0, report, {});
  std::ifstream file(metrics_path(folder));
  std::string line;
  ASSERT_TRUE(std::getline(file, line) && std::getline(file, line));
  const Json told = Json::parse(line).value();
  EXPECT_EQ(told.find("expert_max_over_mean")->as_real(), 4.0);
  EXPECT_EQ(told.find("experts_without_tokens")->as_int(), 3);
  EXPECT_EQ(told.find("aux_loss")->as_real(), 0.25);
  EXPECT_EQ(told.find("z_loss"), nullptr);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep::train
