#include "lockstep/base/text.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace lockstep {
namespace {

using Parts = std::vector<std::string_view>;

TEST(Text, ANumberIsAllOfTheText) {
  EXPECT_EQ(number_in<std::int64_t>("-12"), -12);
  EXPECT_EQ(number_in<double>("1.5e3"), 1500.0);
  EXPECT_EQ(number_in<double>("1.8p+1", std::chars_format::hex), 3.0);
  for (const char* text : {"", " 1", "1 ", "+1", "0x1", "1e1", "9223372036854775808"})
    EXPECT_EQ(number_in<std::int64_t>(text), std::nullopt) << text;
}

TEST(Text, PartsAreOneMoreThanSeparators) {
  EXPECT_EQ(split("", ','), Parts{""});
  EXPECT_EQ(split("a", ','), Parts{"a"});
  EXPECT_EQ(split(",a,,b,", ','), (Parts{"", "a", "", "b", ""}));
}

}  // namespace
}  // namespace lockstep
