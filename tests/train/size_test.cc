// Models large enough that what a tiny one hides would show: memory against its prediction at 50 MB
// and more per rank, and one model of 124 million parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>

#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/check_predictions.h"
#include "lockstep/verify/trial.h"
#include "tests/support/golden.h"
#include "tests/train/sessions.h"
#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

spec::Spec medium_spec() {
  spec::Spec spec = tiny_spec(false, DType::kF32);
  spec.model.layers = 4;
  spec.model.hidden = 256;
  spec.model.heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_dim = 64;
  spec.model.ffn = 704;
  spec.model.vocab = 6144;
  spec.model.max_positions = 128;
  spec.batch = {128, 8, 1};
  return spec;
}

constexpr const char* kMemoryLayouts[] = {
    "dp1 zero0 m4",
    "dp1 zero0 m4 recompute=selective",
    "dp1 zero0 m4 recompute=full",
    "dp2 zero1 m2",
    "dp2 zero2 m2 recompute=full",
    "dp2 zero3 m2 recompute=selective",
    "pp2 dp1 zero0 1f1b m4",
    "pp2 dp1 zero0 gpipe m4 recompute=selective",
    "dp4 zero1 m1",
    "dp4 zero3 m2",
    "dp2x2 zero3 m2 recompute=full",
    "dp4 zero3 m2 recompute=selective resident=3 prefetch=2",
    "pp2 dp2 zero2 1f1b m2",
    "pp2 dp2 zero3 1f1b m2 recompute=selective",
    "tp2 dp1 zero0 m4",
    "tp2 dp1 zero0 nosp m4 recompute=selective",
    "tp2 dp1 zero0 m4 recompute=full",
    "tp2 dp2 zero1 nosp m2",
    "tp2 dp2 zero1 m1",
};

// Everything in tensors on the rank that needs most, in two steps, so that what a step leaves
// behind would show.
TEST(SizeSlow, PeakIsPredictedWithinHalfAPercent) {
  const spec::Spec spec = medium_spec();
  const data::MockTokens tokens(1, spec.model.vocab, true);
  std::string table;
  double sum = 0, worst = 0;
  int layouts = 0;
  for (const char* layout : kMemoryLayouts) {
    const Job job = job_of(spec, layout);
    std::mutex mutex;
    verify::PredictionCheck most;
    double error = 0;
    on_every_rank(job, tokens, [&](comm::World& world, Session& session) {
      verify::RankRecord record{world.rank(), {}};
      for (int step = 0; step < 2; ++step)
        record.steps.push_back(measured_step(world, session, step));
      const verify::PredictionCheck check = verify::check_predictions(job, record);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(check.mismatch, "") << layout;  // traffic, and live bytes after every op
      error = std::max(error, check.peak_error());
      if (check.peak_bytes > most.peak_bytes) most = check;
    });
    EXPECT_GE(most.peak_bytes, 50'000'000) << layout;
    table +=
        join_parts("| ", layout, " | ", job.mesh.world(), " | ", with_commas(most.peak_bytes),
                   " | ", with_commas(most.predicted_peak), strf(" | %.3f %% |\n", 100 * error));
    sum += error;
    worst = std::max(worst, error);
    ++layouts;
  }
  EXPECT_LE(sum / layouts, 0.005);
  EXPECT_LE(worst, 0.02);
  const std::string page = join_parts(
      "# Memory, predicted and measured\n\n"
      "Peak bytes of tensors on the rank that needs most, measured by the counting allocator, and\n"
      "what the walk over the program said before the run. The error is the largest of all ranks.\n"
      "Live bytes after every single op were equal, on every rank, in both steps.\n\n"
      "A llama of ",
      spec.model.layers, " layers, hidden ", spec.model.hidden, ", vocabulary ", spec.model.vocab,
      ", ", with_commas(model::count(model::describe(spec.model).value()).total),
      " parameters, f32,\n", spec.batch.global_batch, " sequences of ", spec.batch.seq,
      " tokens. `tests/train/size_test.cc` writes this page.\n\n"
      "| layout | ranks | measured | predicted | error |\n|---|---:|---:|---:|---:|\n",
      table,
      strf("\nMean error %.3f %%, worst %.3f %%, of %d layouts.\n", 100 * sum / layouts,
           100 * worst, layouts));
  EXPECT_TRUE(support::matches_golden("../../docs/memory.md", page));
  std::printf("%s", page.c_str());
}

// gpt2-small's sizes in llama's shape.
spec::Spec gpt2_sized_spec() {
  spec::Spec spec = tiny_spec(true, DType::kF32);
  spec.model.layers = 12;
  spec.model.hidden = 768;
  spec.model.heads = 12;
  spec.model.kv_heads = 12;
  spec.model.head_dim = 64;
  spec.model.ffn = 2048;
  spec.model.vocab = 50257;
  spec.model.max_positions = 1024;
  spec.batch = {64, 4, 1};
  spec.train.lr.peak = 3e-4;
  return spec;
}

struct Outcome {
  double loss = 0, grad_norm = 0;
  Hash128 digest;
  std::int64_t peak = 0;
};

Outcome one_step(const spec::Spec& spec, const char* layout) {
  const Job job = job_of(spec, layout);
  const data::MockTokens tokens(1, spec.model.vocab, true);
  const verify::StepOrder order = {0, nullptr};
  const RealClock clock;
  const verify::TrialResult trial = verify::run_trial(job, tokens, {&order, 1}, Seconds{600});
  const verify::StepImage& image = trial.images[0];
  Outcome outcome{image.loss, image.grad_norm, image.digest(), 0};
  EXPECT_TRUE(image.updated);
  EXPECT_EQ(trial.disagreement, "");
  Seconds step;
  for (const verify::RankRecord& rank : trial.ranks) {
    const verify::PredictionCheck check = verify::check_predictions(job, rank);
    EXPECT_EQ(check.mismatch, "") << layout;
    EXPECT_LE(check.peak_error(), 0.02) << layout;
    outcome.peak = std::max(outcome.peak, check.peak_bytes);
    step = std::max(step, rank.steps[0].report.time);
  }
  std::printf("%-28s loss %.17g, gradient norm %.17g, %s per rank, step %.1f s, all %.1f s\n",
              layout, outcome.loss, outcome.grad_norm, to_text(Bytes{outcome.peak}).c_str(),
              step.value, clock.now().since_start.value);
  return outcome;
}

// The bits of state against the plainest layout of the class; loss against one rank, which forward
// passes of equal microbatches cannot tell from two.
TEST(SizeSlow, OneStepOfA124MillionParameterModel) {
  const spec::Spec spec = gpt2_sized_spec();
  std::printf("%s parameters\n",
              with_commas(model::count(model::describe(spec.model).value()).total).c_str());
  const Outcome sharded = one_step(spec, "pp2 dp2 zero2 1f1b m2 mb");
  const Outcome plain = one_step(spec, "dp2 zero0 m2 mb");
  EXPECT_EQ(sharded.digest, plain.digest);
  EXPECT_EQ(sharded.loss, plain.loss);
  EXPECT_EQ(sharded.grad_norm, plain.grad_norm);
  const Outcome one = one_step(spec, "dp1 zero0 m4");
  EXPECT_EQ(one.loss, plain.loss);
  EXPECT_NE(one.digest, plain.digest);
  // A gradient is a sum over 4 microbatches, three roundings in either order, each of at most half
  // a unit of f32 of the summands; these cancel, but together they are not 4 times as long as the
  // sum.
  EXPECT_NEAR(one.grad_norm, plain.grad_norm, one.grad_norm * 4 * 6 * std::ldexp(1.0, -24));
}

}  // namespace
}  // namespace lockstep::train
