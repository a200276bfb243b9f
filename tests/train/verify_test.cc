#include "lockstep/train/verify.h"

#include <gtest/gtest.h>

#include "tests/train/tiny.h"

namespace lockstep::train {
namespace {

// Which layouts are verified in f64, on how many ranks, is docs/verified-layouts.md and its test.

TEST(Verify, HoldsF32ToTwiceTheDistanceThatOneRankHasToF64) {
  auto verifier = Verifier::create(tiny_spec(true, DType::kF32), 3);
  ASSERT_TRUE(verifier.ok()) << verifier.error().message;
  EXPECT_GT(verifier->bounds().step, 1e-8);
  EXPECT_LT(verifier->bounds().step, 1e-4);
  for (const char* name :
       {"dp1 zero0 m2", "dp2 zero2 m4", "pp2 dp2 zero3 1f1b m2", "dp2x2 zero1 m2 mb"}) {
    const auto verdict = verifier->check(*plan::parse_layout(name));
    ASSERT_TRUE(verdict.ok()) << verdict.error().message;
    EXPECT_TRUE(verdict->ok()) << name << ": " << verdict->failure;
    EXPECT_GT(verdict->step_error, 0) << name << ": errors are distances to f64";
  }
}

TEST(Verify, RefusesALayoutThatCanNotRun) {
  auto verifier = Verifier::create(tiny_spec(false, DType::kF64), 1);
  ASSERT_TRUE(verifier.ok());
  EXPECT_FALSE(verifier->check(*plan::parse_layout("pp8 dp1 zero0 m2")).ok());
}

}  // namespace
}  // namespace lockstep::train
