#include "lockstep/tensor/strict_kernels.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::tensor {
namespace {

// MKL reads its setting once per process, so each test is a process of its own.
class StrictKernelsDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StrictKernelsDeathTest, HoldOnThisMachineOnceRequested) {
  EXPECT_EXIT(
      {
        request_strict_kernels();
        const StrictReport report = test_strict_kernels();
        std::exit(report.holds() && report.setting == "AUTO,STRICT" && at::get_num_threads() == 1
                      ? 0
                      : 1);
      },
      testing::ExitedWithCode(0), "");
}

// The self-test must be able to fail: on MKL's default dispatch it does.
TEST_F(StrictKernelsDeathTest, TheSelfTestNoticesTheirAbsence) {
  EXPECT_EXIT(
      {
        ::unsetenv("MKL_CBWR");
        at::set_num_threads(1);
        std::exit(test_strict_kernels().holds() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep::tensor
