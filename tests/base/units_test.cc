#include "lockstep/base/units.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Units, BytesReadAsPeopleWriteThem) {
  EXPECT_EQ(to_text(Bytes{0}), "0 B");
  EXPECT_EQ(to_text(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_text(Bytes{1536}), "1.5 KiB");
  EXPECT_EQ(to_text(Bytes{64 << 20}), "64 MiB");
  EXPECT_EQ(to_text(Bytes{-(std::int64_t{3} << 30)}), "-3 GiB");
}

TEST(Units, SizesParseBackExactly) {
  EXPECT_EQ(parse_bytes("64MiB")->value, 64 << 20);
  EXPECT_EQ(parse_bytes("64 MiB")->value, 64 << 20);
  EXPECT_EQ(parse_bytes("1.5kB")->value, 1500);
  EXPECT_EQ(parse_bytes("12")->value, 12);
}

TEST(Units, SizesThatMeanNothingAreRefused) {
  for (const char* text : {"", "MiB", "-1", "1.5", "1XB", "9e30", "nan", "64 mib"}) {
    const auto parsed = parse_bytes(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kBadOptionValue);
  }
}

TEST(Units, CommasGroupThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1000), "-1,000");
  EXPECT_EQ(with_commas(405853388800), "405,853,388,800");
}

TEST(Units, TimesChooseTheirUnit) {
  EXPECT_EQ(to_text(Seconds{0.0034}), "3.4 ms");
  EXPECT_EQ(to_text(Seconds{2.75}), "2.75 s");
  EXPECT_EQ(to_text(Seconds{11520}), "3 h 12 min");
}

TEST(Units, ShortestTextReadsBackAsTheSameNumber) {
  for (const auto& [number, text] :
       {std::pair{5e-4, "5e-4"}, {0.1, "0.1"}, {1.0, "1"}, {1e22, "1e+22"}, {-0.25, "-0.25"}})
    EXPECT_EQ(shortest(number), text);
  for (const double number : {1.0 / 3, 6.02214076e23, 5e-324, 0.95})
    EXPECT_EQ(std::strtod(shortest(number).c_str(), nullptr), number);
}

}  // namespace
}  // namespace lockstep
