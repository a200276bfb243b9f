#include "lockstep/planner/step_quantiles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support/golden.h"

namespace lockstep::planner {
namespace {

// "| step time, held out | 288 | 14.6 | 39.2 | +9.5 |": rows, median, p90, bias.
PublishedErrors headline(const std::string& name) {
  std::ifstream page(support::source_dir() + "/docs/accuracy.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| " + name + " |")) continue;
    PublishedErrors found;
    std::size_t at = 0;
    for (int cell = 0; cell < 6; ++cell, ++at) {
      at = line.find('|', at);
      const double value = std::strtod(line.c_str() + at + 1, nullptr);
      if (cell == 2) found.median = value;
      if (cell == 3) found.p90 = value;
      if (cell == 4) found.bias = value;
    }
    return found;
  }
  ADD_FAILURE() << "docs/accuracy.md has no row `" << name << "`";
  return {};
}

// A page that was written anew moves the numbers in step_quantiles.cc.
TEST(StepQuantiles, AreThoseOfThePublishedErrors) {
  for (const bool is_calibrated : {true, false}) {
    const PublishedErrors page =
        headline(is_calibrated ? "step time, held out" : "step time, held out but excluded");
    EXPECT_EQ(published_errors(is_calibrated).bias, page.bias) << is_calibrated;
    EXPECT_EQ(published_errors(is_calibrated).median, page.median) << is_calibrated;
    EXPECT_EQ(published_errors(is_calibrated).p90, page.p90) << is_calibrated;
  }
}

TEST(StepQuantiles, GrowWithTheErrors) {
  const StepQuantiles known = step_quantiles(2, true), borrowed = step_quantiles(2, false);
  EXPECT_LT(known.p50, known.p95);
  EXPECT_LT(known.p95, borrowed.p95);
  EXPECT_DOUBLE_EQ(step_quantiles(4, true).p95, 2 * known.p95);
}

}  // namespace
}  // namespace lockstep::planner
