#include "lockstep/base/units.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <utility>

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
  EXPECT_EQ(to_text(Seconds{119}), "119 s");
  EXPECT_EQ(to_text(Seconds{120}), "2 min");
  EXPECT_EQ(to_text(Seconds{185.4}), "3 min 5 s");
  EXPECT_EQ(to_text(Seconds{7199.7}), "2 h 0 min");
  EXPECT_EQ(to_text(Seconds{11520}), "3 h 12 min");
}

// A decimal suffix is what an exponent would be, to the last bit; a binary one shifts.
TEST(Units, AmountsAreTheirDigitsTimesTheirSuffix) {
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const std::string digits =
        strf("%.*f", static_cast<int>(random() % 6), static_cast<double>(random() % 1000000) / 997);
    const double number = std::strtod(digits.c_str(), nullptr);
    const std::size_t power = random() % 4;
    const std::string suffix(1, (i % 2 == 0 ? "kmgt" : "KMBT")[power]);
    const char* const exponents[] = {"e3", "e6", "e9", "e12"};
    const double scaled = std::strtod((digits + exponents[power]).c_str(), nullptr);
    EXPECT_EQ(*parse_amount(digits + suffix, Suffixes::kDecimal), scaled) << digits << suffix;
    EXPECT_EQ(*parse_amount("$" + digits + " " + suffix, Suffixes::kMoney), scaled);
    EXPECT_EQ(*parse_amount(digits, Suffixes::kNone), number);
    if (power < 2) {
      EXPECT_EQ(*parse_amount(digits + suffix, Suffixes::kBinary),
                number * (power == 0 ? 1024 : 1048576));
    }
  }
}

TEST(Units, AmountsThatCouldMeanTwoThingsAreRefused) {
  using Case = std::pair<const char*, Suffixes>;
  for (const auto& [text, suffixes] : {Case{"", Suffixes::kDecimal},
                                       {"k", Suffixes::kDecimal},
                                       {"1,000", Suffixes::kDecimal},
                                       {"1_000", Suffixes::kDecimal},
                                       {"1e3k", Suffixes::kDecimal},
                                       {"8kB", Suffixes::kBinary},
                                       {"8KiB", Suffixes::kBinary},
                                       {"1T", Suffixes::kBinary},
                                       {"8k", Suffixes::kNone},
                                       {"$5", Suffixes::kDecimal},
                                       {"$", Suffixes::kMoney},
                                       {"$$5", Suffixes::kMoney},
                                       {"5$", Suffixes::kMoney},
                                       {"inf", Suffixes::kDecimal},
                                       {"nan", Suffixes::kMoney},
                                       {"1e999", Suffixes::kDecimal},
                                       {"0x10", Suffixes::kBinary},
                                       {"1  k", Suffixes::kBinary}}) {
    const auto parsed = parse_amount(text, suffixes);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kBadOptionValue);
    EXPECT_FALSE(parsed.error().help.empty());
  }
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
