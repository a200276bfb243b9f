#include "lockstep/cost/measured/fingerprint.h"

#include <gtest/gtest.h>

namespace lockstep::cost {
namespace {

// What is usual has no trait, so that files measured before there was another still hold.
TEST(Fingerprint, HeadChunkAndThreadsMustAgreeBothWays) {
  const model::ModelConfig model;
  const model::UnitSizes plain, chunked = {.head_chunk = 64}, threaded = {.threads = 2};
  const Fingerprint prints[] = {fingerprint(model, plain), fingerprint(model, chunked),
                                fingerprint(model, threaded)};
  EXPECT_EQ(prints[0].size() + 1, prints[1].size());
  for (const Fingerprint& measured : prints)
    for (const Fingerprint& asked : prints)
      EXPECT_EQ(check_same(measured, asked, "f", "again").ok(), &measured == &asked);
  EXPECT_EQ(check_same(prints[2], prints[0], "f", "again").error().message,
            "`f` was measured with train.threads = 2, asked for is (not set)");
}

}  // namespace
}  // namespace lockstep::cost
