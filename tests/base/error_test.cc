#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Error, WorldErrorsCarryTheWholeError) {
  try {
    throw IoError(Error{Code::kFileUnreadable, "cannot read a.toml", "check its permissions"});
  } catch (const WorldError& world) {
    EXPECT_STREQ(world.what(), "cannot read a.toml");
    EXPECT_EQ(world.error().code, Code::kFileUnreadable);
    EXPECT_EQ(world.error().help, "check its permissions");
  }
}

// A handler for a failing world must not swallow a bug of ours, and the other way round.
static_assert(!std::is_base_of_v<WorldError, BrokenInvariant>);
static_assert(!std::is_base_of_v<BrokenInvariant, WorldError>);

}  // namespace
}  // namespace lockstep
