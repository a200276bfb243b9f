#include "lockstep/base/check.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

template <class Act>
std::string message_of(Act act) {
  try {
    act();
  } catch (const BrokenInvariant& broken) {
    return broken.what();
  }
  return "";
}

TEST(Check, SaysNothingWhileTheInvariantHolds) {
  int evaluations = 0;
  LS_CHECK(++evaluations == 1, "never built");
  EXPECT_EQ(evaluations, 1);
}

TEST(Check, NamesConditionPlaceAndValues) {
  const std::string message = message_of([] { LS_CHECK(1 > 2, "got ", 1, " of ", 2.5); });
  EXPECT_NE(message.find("check_test.cc:"), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("broken invariant: 1 > 2: got 1 of 2.5")) << message;
  EXPECT_TRUE(message_of([] { LS_CHECK(false); }).ends_with("broken invariant: false"));
}

}  // namespace
}  // namespace lockstep
