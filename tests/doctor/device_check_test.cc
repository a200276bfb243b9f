#include "lockstep/doctor/device_check.h"

#include <gtest/gtest.h>

#include "lockstep/comm/backends/backends.h"

namespace lockstep::doctor {
namespace {

// In rehearsal the same finds eight devices (tests/rehearsal).
TEST(DeviceCheck, NoDeviceIsAProblem) {
  if (comm::check_backend(DeviceKind::kCuda).ok()) return;
  const std::vector<Finding> findings = check_devices(DeviceKind::kCuda);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Finding::Verdict::kProblem);
  EXPECT_EQ(findings[0].subject, "cuda");
  EXPECT_NE(findings[0].help, "");
}

}  // namespace
}  // namespace lockstep::doctor
