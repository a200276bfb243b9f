// Ways for the ranks of one sequence to meet in attention: ring, gather, Ulysses.
#include <gtest/gtest.h>

#include "lockstep/cost/analytic/collective_time.h"
#include "lockstep/cost/analytic/compute_time.h"
#include "lockstep/cost/analytic/peak_memory.h"
#include "tests/cost/analytic/requests.h"

namespace lockstep::cost {
namespace {

constexpr model::CpMethod kWays[] = {model::CpMethod::kRing, model::CpMethod::kGather,
                                     model::CpMethod::kUlysses};

void long_sequence(PriceRequest& r, int cp) {
  r.seq = 131072;
  r.tp = 8;
  r.cp = cp;
  r.dp = 64 / cp;
  r.global_batch = 64;
}

TEST(CpMethods, AreOneWithoutContextParallelism) {
  Rig rig("llama3-405b", "h100:512");
  long_sequence(rig.request, 1);
  const double alone = price_time(rig.request).total();
  for (const model::CpMethod way : kWays) {
    rig.request.context = way;
    EXPECT_EQ(price_time(rig.request).total(), alone);
    EXPECT_EQ(price_time(rig.request).context, 0);
  }
}

// Llama 3 gathers 4 k b s / t bytes once forward, once backward, and sums as many gradients.
TEST(CpMethods, GatherMovesKeysAndValuesThreeTimes) {
  Rig rig("llama3-405b", "h100:512");
  PriceRequest& r = rig.request;
  long_sequence(r, 16);
  r.context = model::CpMethod::kGather;
  const double bytes = 4 * rig.shape.k() * r.seq / r.tp;
  const double once = gather_seconds({r.cluster, r.rates}, bytes, {16, 8});
  EXPECT_NEAR(price_time(r).context, double(r.microbatches()) * rig.shape.layers * 3 * once, 1e-9);
  EXPECT_NEAR(
      stage_memory(r, 0).transients,
      [&] {
        PriceRequest ring = r;
        ring.context = model::CpMethod::kRing;
        return stage_memory(ring, 0).event == PeakEvent::kLoss
                   ? stage_memory(ring, 0).transients
                   : stage_memory(ring, 0).transients + bytes;
      }(),
      1);
}

// With as many heads of keys as of queries, heads move fewer bytes than keys of all ranks do: 4 (c
// - 1) / c against 2 (c - 1) parts of a rank's activations (arXiv 2309.14509, section 3.2). Few
// heads of keys turn it round.
TEST(CpMethods, FewHeadsOfKeysFavourTheGather) {
  const auto seconds = [](const char* model, model::CpMethod way) {
    Rig rig(model, "h100:512");
    long_sequence(rig.request, 8);
    rig.request.tp = 1;
    rig.request.context = way;
    return price_time(rig.request).context;
  };
  EXPECT_LT(seconds("gpt3-175b", model::CpMethod::kUlysses),
            seconds("gpt3-175b", model::CpMethod::kGather));
  EXPECT_GT(seconds("llama3-405b", model::CpMethod::kUlysses),
            seconds("llama3-405b", model::CpMethod::kGather));
}

// Cutting a sequence that fits costs time on the same devices: kernels see shorter parts, outputs
// are merged, and ranks wait. What a longer sequence makes possible is memory's business.
TEST(CpMethods, CuttingAShortSequenceNeverPays) {
  for (const model::CpMethod way : kWays)
    for (const int cp : {2, 4, 8}) {
      Rig rig("llama3-405b", "h100:512");
      PriceRequest& r = rig.request;
      r.seq = 8192;
      r.tp = 8;
      r.dp = 64;
      r.global_batch = 512;
      r.context = way;
      const double whole = price_time(r).total();
      r.cp = cp;
      r.dp = 64 / cp;
      EXPECT_GT(price_time(r).total(), whole) << cp << static_cast<int>(way);
    }
}

}  // namespace
}  // namespace lockstep::cost
