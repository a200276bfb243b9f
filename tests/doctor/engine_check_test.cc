#include "lockstep/doctor/engine_check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/comm/backends/backends.h"

namespace lockstep::doctor {
namespace {

TEST(EngineCheck, FindsNoProblemHereAndSpeaksOfEveryBackend) {
  const std::vector<Finding> findings = check_engine();
  for (const Finding& finding : findings)
    EXPECT_NE(finding.verdict, Finding::Verdict::kProblem)
        << finding.subject << ": " << finding.text;
  for (const comm::Backend& backend : comm::backends())
    EXPECT_EQ(std::ranges::count(findings, backend.name, &Finding::subject), 1) << backend.name;
}

}  // namespace
}  // namespace lockstep::doctor
