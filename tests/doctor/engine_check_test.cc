#include "lockstep/doctor/engine_check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::doctor {
namespace {

TEST(EngineCheck, FindsNoProblemHereAndSpeaksOfEveryBackend) {
  const std::vector<Finding> findings = check_engine();
  for (const Finding& finding : findings)
    EXPECT_NE(finding.verdict, Finding::Verdict::kProblem)
        << finding.subject << ": " << finding.text;
  for (const char* backend : {"gloo", "nccl"})
    EXPECT_EQ(std::ranges::count(findings, backend, &Finding::subject), 1) << backend;
}

}  // namespace
}  // namespace lockstep::doctor
