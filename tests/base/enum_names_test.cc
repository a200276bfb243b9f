#include "lockstep/base/enum_names.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

enum class Fruit { kApple, kPear };
constexpr EnumNames<Fruit, 2> kFruits = {{"apple", "pear"}};

TEST(EnumNames, LeadBothWays) {
  EXPECT_EQ(kFruits.name_of(Fruit::kPear), "pear");
  EXPECT_EQ(kFruits.find("apple"), Fruit::kApple);
  EXPECT_EQ(kFruits.find("plum"), std::nullopt);
  EXPECT_EQ(kFruits.names(), (std::vector<std::string>{"apple", "pear"}));
  EXPECT_THROW(kFruits.name_of(static_cast<Fruit>(2)), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep
