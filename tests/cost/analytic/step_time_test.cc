// price_time() and price(): what every plan is ranked by.
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/cost/analytic/stage_split.h"
#include "tests/cost/analytic/requests.h"

namespace lockstep::cost {
namespace {

void llama3(PriceRequest& r, int dp) {
  r.seq = 8192;
  r.tp = 8;
  r.pp = 16;
  r.dp = dp;
  r.chunks = 8;
  r.schedule = &pipeline::row("interleaved");
  r.global_batch = 2048;
  r.zero = 1;
}

// Anchor A13: 430 TFLOP/s on 8,192 devices, 400 on 16,384 with the same batch. One number is taken
// from the first row (how much longer everything takes), and the second is predicted within 2 %.
TEST(StepTime, Llama3SecondRowFromTheFirst) {
  Rig half("llama3-405b", "h100:8192"), whole("llama3-405b", "h100:16384");
  llama3(half.request, 64);
  llama3(whole.request, 128);
  const double scale = price(half.request).tokens_per_s / 8192 / 430;
  EXPECT_NEAR(price(whole.request).tokens_per_s / 16384 / scale / 400, 1, 0.02);
}

// The terms are seconds of one step and add up; no term is negative.
TEST(StepTime, TermsAddUp) {
  Rig rig("llama3-405b", "h100:16384");
  llama3(rig.request, 128);
  const StepTime t = price_time(rig.request);
  double sum = 0;
  for (const StepTerm& term : kStepTerms) {
    EXPECT_GE(t.*term.seconds, 0) << term.name;
    sum += t.*term.seconds;
  }
  EXPECT_DOUBLE_EQ(sum, t.total());
  EXPECT_GT(t.total(), 0);
}

// Of ten gathers and scatters of a layer under sequence parallelism two are of inputs that were
// kept in shards (Korthikanti et al., section 4.2.2); hidden or not, without sequence parallelism
// there are eight.
TEST(StepTime, InputsAreGatheredAgain) {
  Rig rig("llama3-8b", "h100:8");
  PriceRequest& r = rig.request;
  r.tp = 8;
  r.global_batch = 8;
  r.stack.overlap_tensor = false;
  r.stack.jitter = 0;
  const double eight = price_time(r).tensor;
  r.stack.overlap_regather = false;
  EXPECT_NEAR(price_time(r).tensor / eight, 10.0 / 8, 1e-12);
  r.sp = false;
  EXPECT_NEAR(price_time(r).tensor / eight, 1, 1e-12);
}

// What data ranks wait for grows with the bytes of a gradient on the wire, whatever is kept of it.
TEST(StepTime, GradientsOnTheWire) {
  Rig rig("llama3-8b", "h100:64");
  PriceRequest& r = rig.request;
  r.dp = 64;
  r.global_batch = 64;
  r.zero = 0;
  r.stack.overlap_data = false;
  r.stack.grad_bytes = 2;
  r.stack.reduce_bytes = 2;
  const double two = price_time(r).data;
  r.stack.reduce_bytes = 4;
  EXPECT_NEAR(price_time(r).data / two, 2, 1e-2);  // but for latency
  r.stack.network_share = 0.5;
  EXPECT_NEAR(price_time(r).data / two, 4, 2e-2);
}

// A step is never faster than its arithmetic at the data sheet's peak.
TEST(StepTime, NeverBeatsThePeak) {
  for (const char* model : {"llama3-8b", "llama3-70b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b"})
    for (const int tp : {1, 8})
      for (const int microbatch : {1, 4}) {
        Rig rig(model, "h100:64");
        rig.request.tp = tp;
        rig.request.dp = 64 / tp;
        rig.request.microbatch = microbatch;
        rig.request.global_batch = 64 / tp * 8;
        const Price p = price(rig.request);
        EXPECT_LT(p.mfu_causal, 0.85) << model;
        EXPECT_GT(p.mfu_full, p.mfu_causal);
      }
}

// More of what costs time costs time: recomputation, a longer pipeline at the same batch, a slower
// network.
TEST(StepTime, Monotone) {
  Rig rig("llama3-70b", "h100:64");
  PriceRequest& r = rig.request;
  r.tp = 8;
  r.dp = 8;
  r.global_batch = 64;
  const double base = price_time(r).total();
  r.drop = model::kWholeBlock;
  EXPECT_GT(price_time(r).total(), base * 1.15);
  r.drop = model::kKeepAll;
  r.pp = 8;
  r.dp = 1;
  EXPECT_GT(price_time(r).bubble, 0);
  r.pp = 1;
  r.dp = 8;
  r.zero = 3;
  rig.machine.tiers.back().bytes_per_s.value /= 8;
  EXPECT_GT(price_time(r).data, 0);
}

// Seeds: with one microbatch a pipeline of n computes 1 / n of the time.
TEST(StepTime, OneMicrobatchKeepsOneStageBusy) {
  Rig rig("llama3-70b", "h100:8");
  rig.request.pp = 8;
  rig.request.global_batch = 1;
  const StepTime t = price_time(rig.request);
  const double busy = t.forward + t.backward + t.head;
  EXPECT_NEAR(busy / (busy + t.bubble), 1.0 / 8, 0.02);
}

}  // namespace
}  // namespace lockstep::cost
