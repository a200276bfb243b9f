#include "lockstep/base/ids.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace lockstep {
namespace {

// Mixing two of them up must not compile.
static_assert(!std::is_convertible_v<Rank, Coord>);
static_assert(!std::is_convertible_v<Stage, Chunk>);
static_assert(!std::is_convertible_v<int, Rank>);
static_assert(!std::is_convertible_v<Rank, int>);

TEST(Ids, CompareByValue) {
  EXPECT_EQ(Rank{3}, Rank{3});
  EXPECT_LT(Rank{2}, Rank{3});
  EXPECT_EQ(Stage{}, Stage{0});
}

}  // namespace
}  // namespace lockstep
