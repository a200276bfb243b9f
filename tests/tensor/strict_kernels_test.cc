#include "lockstep/tensor/strict_kernels.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace lockstep::tensor {
namespace {

// Runs alone in its process under ctest, as main does: the setting must be there before the first
// product.
TEST(StrictKernels, HoldOnThisMachineOnceRequested) {
  request_strict_kernels();
  const StrictReport report = test_strict_kernels();
  EXPECT_EQ(at::get_num_threads(), 1);
  EXPECT_EQ(report.setting, "AUTO,STRICT");
  EXPECT_TRUE(report.holds_f32);
  EXPECT_TRUE(report.holds_f64);
}

// The self-test must be able to fail: on MKL's default dispatch it does.
TEST(StrictKernels, TheSelfTestNoticesTheirAbsence) {
  ::unsetenv("MKL_CBWR");
  at::set_num_threads(1);
  const StrictReport report = test_strict_kernels();
  EXPECT_FALSE(report.holds());
}

}  // namespace
}  // namespace lockstep::tensor
