#include "lockstep/base/json.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <ctime>
#include <limits>
#include <random>

namespace lockstep {
namespace {

Json parsed(std::string_view text) {
  const auto json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text << ": " << (json.ok() ? "" : json.error().message);
  return json.ok() ? *json : Json();
}

std::string refusal(std::string_view text) {
  const auto json = Json::parse(text);
  if (json.ok()) return "accepted";
  EXPECT_EQ(json.error().code, Code::kSyntax);
  return json.error().message;
}

Json sample() {
  return Json::object(
      {{"zeta", 1},
       {"alpha", Json::array({true, nullptr, -2.5, "x\n\"y\""})},
       {"empty", Json::object({{"list", Json::array()}, {"map", Json::object()}})}});
}

TEST(Json, DumpsOnOneLineOrIndentedInTheOrderOfWriting) {
  EXPECT_EQ(sample().dump(),
            R"({"zeta":1,"alpha":[true,null,-2.5,"x\n\"y\""],"empty":{"list":[],"map":{}}})");
  EXPECT_EQ(sample().dump(2), R"({
  "zeta": 1,
  "alpha": [
    true,
    null,
    -2.5,
    "x\n\"y\""
  ],
  "empty": {
    "list": [],
    "map": {}
  }
})");
}

TEST(Json, ReadsBackWhatItDumps) {
  EXPECT_EQ(parsed(sample().dump()), sample());
  EXPECT_EQ(parsed(sample().dump(4)), sample());
  EXPECT_EQ(parsed(" null "), Json());
  EXPECT_EQ(parsed(R"("\u00e9\ud83d\ude00")").as_text(), "\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(Json, ListsWhatARangeHolds) {
  const std::vector<int> numbers = {3, 1, 2};
  EXPECT_EQ(Json::list(numbers).dump(), "[3,1,2]");
  EXPECT_EQ(Json::list(numbers, [](int n) { return Json::object({{"n", n}}); }).dump(),
            R"([{"n":3},{"n":1},{"n":2}])");
  EXPECT_EQ(Json::list(std::vector<std::string>()).dump(), "[]");
}

TEST(Json, WholeNumbersStayWholeAndRealsStayReal) {
  for (const std::int64_t n : {std::numeric_limits<std::int64_t>::min(), std::int64_t{0},
                               std::numeric_limits<std::int64_t>::max()}) {
    const Json back = parsed(Json(n).dump());
    ASSERT_TRUE(back.is_int());
    EXPECT_EQ(back.as_int(), n);
  }
  EXPECT_EQ(Json(2.0).dump(), "2.0");
  EXPECT_EQ(parsed("2.0").kind(), Json::Kind::kReal);
  EXPECT_EQ(parsed("1e2").kind(), Json::Kind::kReal);
  EXPECT_EQ(parsed("2").as_real(), 2.0);
  EXPECT_THROW(Json(std::uint64_t{1} << 63), BrokenInvariant);
}

TEST(Json, RealsTakeTheFewestDigitsAndKeepTheirBits) {
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1e22).dump(), "1e+22");
  EXPECT_EQ(Json(5e-324).dump(), "5e-324");
  EXPECT_EQ(Json(-0.0).dump(), "-0.0");
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const auto x = std::bit_cast<double>(random());
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(parsed(Json(x).dump()).as_real()),
              std::bit_cast<std::uint64_t>(x));
  }
}

TEST(Json, NonFiniteRealsBecomeTexts) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Json::array({std::nan(""), infinity, -infinity}).dump(),
            R"(["NaN","Infinity","-Infinity"])");
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(Json("a\xff").dump(), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(Json("\x01\x7f").dump(), "\"\\u0001\x7f\"");
}

TEST(Json, SaysWhereTheTextIsWrong) {
  EXPECT_TRUE(refusal("").starts_with("1:1: ")) << refusal("");
  EXPECT_TRUE(refusal("{\n  \"a\": 1,\n  \"b\": ?\n}").starts_with("3:8: "));
  EXPECT_TRUE(refusal("[1, 2").starts_with("1:6: ")) << refusal("[1, 2");
  EXPECT_TRUE(refusal("{\"a\":1}\nx").starts_with("2:1: "));
  EXPECT_TRUE(refusal("[1,]").starts_with("1:4: "));
  EXPECT_TRUE(refusal("\"\xff\"").starts_with("1:2: "));
  EXPECT_EQ(refusal("?").find("json.exception"), std::string::npos);
  for (const char* text :
       {"nan", "NaN", "+1", "01", ".5", "'a'", "{a:1}", "[1]]", "// c\n1", "tru"})
    EXPECT_NE(refusal(text), "accepted") << text;
}

TEST(Json, RefusesAKeyTwiceAndPointsAtTheSecond) {
  EXPECT_EQ(refusal("{\"a\": 1,\n \"a\": 2}"), "2:2: key \"a\" appears twice in one object");
  EXPECT_EQ(refusal(R"({"\"\\": 1, "\"\\": 2})"), "1:13: key \"\"\\\" appears twice in one object");
  EXPECT_EQ(parsed(R"({"a":{"a":1},"b":[{"a":2},{"a":3}]})").members().size(), 2u);
}

TEST(Json, RefusesNumbersItCouldNotKeep) {
  EXPECT_EQ(refusal("[0, 9223372036854775808]"),
            "1:5: whole number 9223372036854775808 does not fit into 64 signed bits");
  EXPECT_TRUE(refusal("{\"a\":\n-9223372036854775809 }").starts_with("2:1: whole number -92"));
  EXPECT_TRUE(refusal("123456789012345678901234567890").starts_with("1:1: whole number"));
  EXPECT_NE(refusal("1e400"), "accepted");
}

TEST(Json, RefusesNestingThatCouldExhaustTheStack) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(parsed(nested(512)).dump(), nested(512));
  EXPECT_EQ(refusal(nested(513)), "1:513: nesting is deeper than 512 levels");
  const std::clock_t begin = std::clock();
  for (const std::string open : {"[", "{\"a\":", "[{\"a\":[1,"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_TRUE(refusal(text).ends_with("nesting is deeper than 512 levels"));
  }
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 0.1);
}

TEST(Json, ObjectsAreReadAndChangedByKey) {
  Json json = Json::object();
  json.set("a", 1).set("b", "two").set("a", Json::array().push(3));
  EXPECT_EQ(json.dump(), R"({"a":[3],"b":"two"})");
  ASSERT_NE(json.find("b"), nullptr);
  EXPECT_EQ(json.find("b")->as_text(), "two");
  EXPECT_EQ(json.find("c"), nullptr);
  EXPECT_THROW(Json::object({{"a", 1}, {"a", 2}}), BrokenInvariant);
  EXPECT_THROW(json.as_int(), BrokenInvariant);
  EXPECT_THROW(json.push(1), BrokenInvariant);
  EXPECT_THROW(Json(1).set("a", 1), BrokenInvariant);
  EXPECT_THROW(Json("1").as_real(), BrokenInvariant);
}

}  // namespace
}  // namespace lockstep
