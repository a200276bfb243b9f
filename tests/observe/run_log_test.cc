#include "lockstep/observe/run_log.h"

#include <gtest/gtest.h>

#include "lockstep/base/units.h"

namespace lockstep::observe {
namespace {

// As training_log() of Megatron-LM core 0.20 writes it.
std::string megatron(int iteration, double ms, int batch) {
  return strf(
      " [2026-08-22 15:22:22.123456] iteration %8d/   10000 | consumed samples: %12d | elapsed "
      "time per iteration (ms): %.1f | throughput per GPU (TFLOP/s/GPU): %.1f | learning rate: "
      "3.000000E-04 | global batch size: %5d | lm loss: 3.214500E+00 | loss scale: 1.0 | grad "
      "norm: 0.543 | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
      iteration, iteration * batch, ms, 4.2e6 / ms, batch);
}

// As MetricsProcessor.log() of torchtitan 0.2.2 writes it, with its colours.
std::string titan(int step, double gib, const char* tps) {
  return strf(
      "[rank0]:[titan] 2026-08-21 21:30:21,000 - root - INFO - \x1b[31mstep: %2d  \x1b[32mloss:  "
      "7.12345  \x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[38;2;54;234;195mmemory: %5.2fGiB"
      "(60.00%%)  \x1b[34mtps: %s  \x1b[36mtflops: 1,371.50  \x1b[35mmfu: 37.50%%\x1b[39m\n",
      step, gib, tps);
}

TEST(RunLog, ReadsMegatronsLines) {
  std::string text = "building GPT model ...\n" + megatron(1, 90000, 512) + megatron(2, 30000, 512);
  text +=
      "[Rank 0] (after 2 iterations) memory (MB) | allocated: 20000.00 | max allocated: "
      "40000.00 | reserved: 41000.00 | max reserved: 43008.00\n"
      "[Rank 1] (after 2 iterations) memory (MB) | allocated: 20000.00 | max allocated: "
      "40000.00 | reserved: 41000.00 | max reserved: 45056.00\n";
  for (const double ms : {10400.0, 10000.5, 99000.0, 10200.0, 9900.0}) text += megatron(3, ms, 512);
  const RunLog log = read_run_log(text, "train.log").value();
  EXPECT_DOUBLE_EQ(log.step_s, 10.2);
  EXPECT_EQ(log.tokens_per_s, 0);
  EXPECT_NEAR(log.flop_per_s, 4.2e18 / 10200, 1e11);
  EXPECT_EQ(log.memory_bytes, 44.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(log.reading, cost::Reading::kReserved);
  EXPECT_EQ(log.cells.at("global_batch"), "512");
}

// Batches that grow: those of the last size count.
TEST(RunLog, LeavesOtherBatchesOut) {
  std::string text;
  for (const int batch : {128, 128, 128, 128, 128, 128, 256, 256, 256})
    text += megatron(1, 20.0 * batch, batch);
  const RunLog log = read_run_log(text, "train.log").value();
  EXPECT_DOUBLE_EQ(log.step_s, 5.12);
  EXPECT_EQ(log.cells.at("global_batch"), "256");
}

TEST(RunLog, ReadsTorchtitansLines) {
  std::string text = titan(1, 30.5, "512") + titan(10, 47.25, "5,000");
  for (const char* tps : {"5,812", "5,790", "1,000", "5,801", "5,805"}) text += titan(20, 47, tps);
  text +=
      "[titan] - root - INFO - validate step: 20  loss: 7.1  memory: 60.00GiB(75.00%)  tps: "
      "9,999\n";
  const RunLog log = read_run_log(text, "train.log").value();
  EXPECT_EQ(log.step_s, 0);
  EXPECT_EQ(log.tokens_per_s, 5801);
  EXPECT_DOUBLE_EQ(log.flop_per_s, 1371.5e12);
  EXPECT_EQ(log.memory_bytes, 47.25 * 1024 * 1024 * 1024);
  EXPECT_FALSE(log.cells.contains("global_batch"));
}

const std::string kHead =
    R"("schema":"lockstep.metrics/1","model":"tiny","parameters":229952,"layout":"dp2 zero1",)"
    R"("seq":64,"global_batch":32,"microbatch":4,"ranks":2,"dtype":"bf16","steps":50)";

std::string step(int number, double seconds) {
  return strf(R"({"event":"step","step":%d,"samples":%d,"seconds":%.17g,"peak_bytes":5407744})"
              "\n",
              number, 32 * number, seconds);
}

// Of the last session; a skipped step, an evaluation and a line that was cut short count nothing.
TEST(RunLog, ReadsMetrics) {
  std::string text = R"({"event":"start","step":0,)" + kHead + "}\n";
  for (int i = 1; i < 9; ++i) text += step(i, 7);
  text += R"({"event":"resume","step":8,)" + kHead +
          R"(,"cluster":"h100:2"})"
          "\n";
  for (int i = 9; i < 15; ++i) text += step(i, i < 11 ? 3 : 0.5);
  text += R"({"event":"eval","step":14,"samples":64,"seconds":9.0})"
          "\n" +
          step(15, 0.25) +
          R"({"event":"skip","step":16,"samples":512,"seconds":0.1})"
          "\n" +
          step(17, 80) + step(18, 0.5) + R"({"event":"step","step":19,"seco)";
  const RunLog log = read_run_log(text, "metrics.jsonl").value();
  EXPECT_EQ(log.step_s, 0.5);
  EXPECT_EQ(log.memory_bytes, 5407744);
  EXPECT_EQ(log.reading, cost::Reading::kAllocated);
  EXPECT_EQ(log.cells.at("layout"), "dp2 zero1 microbatch=4");
  EXPECT_EQ(log.cells.at("cluster"), "h100:2");
  EXPECT_EQ(log.cells.at("global_batch"), "32");
  EXPECT_EQ(log.cells.at("parameters"), "229952");
}

TEST(RunLog, RefusesByName) {
  const auto refused = [](const std::string& text) {
    return read_run_log(text, "x.log").error().message;
  };
  EXPECT_NE(refused("nothing here\n").find("`x.log` has no line of a step"), std::string::npos);
  EXPECT_NE(refused(megatron(1, 9, 1) + megatron(2, 9, 1) + megatron(3, 9, 1)).find("has 1 lines"),
            std::string::npos);
  EXPECT_NE(refused("{\"event\":\"start\",\"model\":\"tiny\"}\n").find("`layout`"),
            std::string::npos);
  EXPECT_NE(refused("{\"event\":\"start\"\n").find("without `event`"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::observe
