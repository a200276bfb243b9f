#include "lockstep/base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lockstep {
namespace {

Error refusal() { return {Code::kOutOfRange, "tp is 3", "use 2 or 4"}; }

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = 7;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  EXPECT_THROW(good.error(), BrokenInvariant);

  const Result<int> bad = refusal();
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Code::kOutOfRange);
  EXPECT_EQ(bad.error().help, "use 2 or 4");
}

TEST(Result, AskingAFailedOneForItsValueNamesTheFailure) {
  const Result<int> bad = refusal();
  try {
    static_cast<void>(bad.value());
    FAIL() << "no exception";
  } catch (const BrokenInvariant& broken) {
    EXPECT_NE(std::string(broken.what()).find("tp is 3"), std::string::npos) << broken.what();
  }
}

TEST(Result, GivesAwayValuesThatCanOnlyMove) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 5);
}

TEST(Result, LetsItsValueBeChanged) {
  Result<std::string> result = std::string("a");
  *result += 'b';
  result->push_back('c');
  EXPECT_EQ(*result, "abc");
}

TEST(Result, OfNothingSucceedsUnlessItIsGivenAnError) {
  const Result<void> done;
  EXPECT_TRUE(done.ok());
  EXPECT_THROW(done.error(), BrokenInvariant);
  const Result<void> failed = refusal();
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "tp is 3");
  EXPECT_NO_THROW(done.value());
  EXPECT_THROW(failed.value(), BrokenInvariant);
}

Result<int> sum(const Result<void>& first, Result<std::unique_ptr<int>> second) {
  LS_TRY(first);
  const std::unique_ptr<int> taken = LS_TRY(std::move(second));
  return *taken + 1;
}

TEST(Result, TryTakesTheValueOrReturnsTheError) {
  EXPECT_EQ(*sum({}, std::make_unique<int>(5)), 6);
  EXPECT_EQ(sum(refusal(), std::make_unique<int>(5)).error().message, "tp is 3");
  EXPECT_EQ(sum({}, refusal()).error().help, "use 2 or 4");
}

}  // namespace
}  // namespace lockstep
