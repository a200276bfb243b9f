// Golden files: expected texts under tests/golden, compared byte for byte.
// Run a test with LOCKSTEP_UPDATE_GOLDEN=1 to rewrite them; the change then shows in review.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace lockstep::support {

// Compares `actual` with tests/golden/<name>; on a difference says where the first one is.
testing::AssertionResult matches_golden(const std::string& name, const std::string& actual);

// The checkout's root, for tests that read sources or documents.
std::string source_dir();

}  // namespace lockstep::support
