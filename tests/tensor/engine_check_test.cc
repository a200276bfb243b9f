#include "lockstep/tensor/engine_check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/tensor/backends.h"
#include "lockstep/tensor/gloo_communicator.h"
#include "lockstep/tensor/gloo_world.h"

namespace lockstep::tensor {
namespace {

TEST(EngineCheck, FindsNoProblemHereAndSpeaksOfEveryBackend) {
  const std::vector<Finding> findings = check_engine();
  for (const Finding& finding : findings)
    EXPECT_NE(finding.verdict, Finding::Verdict::kProblem)
        << finding.subject << ": " << finding.text;
  for (const comm::BackendRow& row : all_backends())
    EXPECT_EQ(std::ranges::count_if(
                  findings, [&](const Finding& finding) { return finding.subject == row.name; }),
              1)
        << row.name;
  EXPECT_EQ(torch_version().rfind("2.", 0), 0u);
}

TEST(GlooScratch, IsTheSegmentsOnTheWay) {
  EXPECT_EQ(gloo_scratch(comm::OpKind::kAllGather, Bytes{1 << 30}, 8), Bytes{0});
  EXPECT_EQ(gloo_scratch(comm::OpKind::kReduceScatter, Bytes{8 << 10}, 8), Bytes{7 << 10});
  EXPECT_EQ(gloo_scratch(comm::OpKind::kReduceScatter, Bytes{std::int64_t{1} << 30}, 2),
            Bytes{kSegmentsInFlight * kReduceSegmentBytes});
  EXPECT_EQ(gloo_scratch(comm::OpKind::kReduceScatter, Bytes{1 << 20}, 1), Bytes{0});
}

}  // namespace
}  // namespace lockstep::tensor
