#include "lockstep/base/json_fields.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kObject =
    R"({"t": "words", "i": -3, "c": 4, "r": 0.5, "n": [1, 2], "l": ["a", 1],
        "o": {"x": "1", "y": "2"}, "in": {"deep": [{"k": 1}, {"k": "no"}]}})";

Json some_object() { return Json::parse(kObject).value(); }

TEST(JsonFields, ReadsWhatIsThere) {
  const Json json = some_object();
  JsonTrouble trouble;
  JsonFields fields(json, "", trouble);
  EXPECT_EQ(fields.text("t"), "words");
  EXPECT_EQ(fields.integer("i"), -3);
  EXPECT_EQ(fields.count("c"), 4);
  EXPECT_EQ(fields.real("r"), 0.5);
  EXPECT_EQ(fields.counts("n"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(fields.list("l").size(), 2u);
  EXPECT_EQ(fields.texts("o"),
            (std::vector<std::pair<std::string, std::string>>{{"x", "1"}, {"y", "2"}}));
  JsonFields in = fields.object("in");
  EXPECT_EQ(in.list("deep").size(), 2u);
  EXPECT_EQ(in.item("deep", 0).count("k"), 1);
  in.done();
  fields.done();
  EXPECT_FALSE(trouble) << *trouble;
}

// The first mistake is told with its place; what could not be read is nothing.
TEST(JsonFields, EveryMistakeIsNamedWithItsPlace) {
  struct Case {
    void (*read)(JsonFields&);
    const char* says;
  };
  const Case cases[] = {
      {[](JsonFields& f) { EXPECT_EQ(f.text("none"), ""); }, "`none` is missing"},
      {[](JsonFields& f) { EXPECT_EQ(f.text("i"), ""); }, "`i` is no text"},
      {[](JsonFields& f) { EXPECT_EQ(f.integer("r"), 0); }, "`r` is no whole number"},
      {[](JsonFields& f) { EXPECT_EQ(f.count("i"), 0); }, "`i` is no whole number from 0 on"},
      {[](JsonFields& f) { EXPECT_EQ(f.real("i"), 0); }, "`i` is no number of 0 or more"},
      {[](JsonFields& f) { EXPECT_TRUE(f.counts("l").empty()); },
       "`l` is no list of whole numbers from 0 on"},
      {[](JsonFields& f) { EXPECT_TRUE(f.list("o").empty()); }, "`o` is no list"},
      {[](JsonFields& f) { EXPECT_TRUE(f.texts("in").empty()); }, "`in` is no object of texts"},
      {[](JsonFields& f) { EXPECT_EQ(f.object("n").count("k"), 0); }, "`n` is no object"},
      {[](JsonFields& f) { EXPECT_EQ(f.object("in").item("deep", 1).count("k"), 0); },
       "`in.deep[1].k` is no whole number"},
      {[](JsonFields& f) { f.object("o").done(); }, "`o` has keys that this version does not know"},
      {[](JsonFields& f) { f.done(); }, "it has keys that this version does not know"},
      {[](JsonFields& f) { f.refuse("c", "is odd"), f.refuse("r", "is even"); }, "`c` is odd"}};
  const Json json = some_object();
  for (const Case& c : cases) {
    JsonTrouble trouble;
    JsonFields fields(json, "", trouble);
    c.read(fields);
    EXPECT_EQ(trouble, c.says);
  }
  JsonTrouble trouble;
  EXPECT_EQ(JsonFields(Json(3), "", trouble).count("k"), 0);
  EXPECT_EQ(trouble, "it is no object");
}

}  // namespace
}  // namespace lockstep
