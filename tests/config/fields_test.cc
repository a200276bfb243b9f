#include "lockstep/config/fields.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/fields_markdown.h"

namespace lockstep::config {
namespace {

const FieldTable& table() {
  static const FieldTable fields(
      "test",
      {{.path = "top", .type = FieldType::kInt, .doc = "Top.", .initial = "7"},
       {.path = "a.count", .type = FieldType::kInt, .doc = "Count.", .required = true, .min = 1},
       {.path = "a.rate",
        .type = FieldType::kReal,
        .doc = "Rate.",
        .initial = "0.5",
        .min = 0,
        .max = 1,
        .above_min = true},
       {.path = "a.flag", .type = FieldType::kBool, .doc = "Flag.", .initial = "false"},
       {.path = "a.kind",
        .type = FieldType::kChoice,
        .doc = "Kind.",
        .initial = "\"bf16\"",
        .choices = {"f32", "bf16"},
        .refused = {{"fp16", "it is refused"}},
        .renamed = {{"bfloat16", "bf16"}}},
       {.path = "b.size", .type = FieldType::kBytes, .doc = "Size.", .initial = "\"64 MiB\""},
       {.path = "b.list",
        .type = FieldType::kList,
        .doc = "List.",
        .min = 0,
        .element = FieldType::kInt},
       {.path = "b.name",
        .type = FieldType::kString,
        .doc = "Name.",
        .known_as = {"foreign_name"}}});
  return fields;
}

Document parse(const std::string& text, Report& report) {
  return *parse_document(text, "t.toml", Format::kToml, report);
}

struct Wrong {
  std::string text;
  Code code;
  std::string message;
  std::string help;
  std::string covered;  // what the primary span covers
};

class WrongValue : public testing::TestWithParam<Wrong> {};

TEST_P(WrongValue, IsOneDiagnosticAtItsPlace) {
  Report report;
  const Document document = parse(GetParam().text, report);
  check(document, table(), report);
  ASSERT_EQ(report.diagnostics().size(), 1u) << report.text("t.toml", false);
  const Diagnostic& d = report.diagnostics()[0];
  EXPECT_EQ(d.code, GetParam().code);
  EXPECT_EQ(d.message, GetParam().message);
  EXPECT_EQ(d.help, GetParam().help);
  const std::string line(report.sources.line("t.toml", d.primary.span.line));
  EXPECT_EQ(line.substr(static_cast<std::size_t>(d.primary.span.column - 1),
                        static_cast<std::size_t>(d.primary.span.length)),
            GetParam().covered);
}

INSTANTIATE_TEST_SUITE_P(
    Each, WrongValue,
    testing::Values(
        Wrong{"[a]\ncount = \"8\"", Code::kWrongType, "`a.count` must be a whole number, not text",
              "remove the quotes: count = 8", "\"8\""},
        Wrong{"[a]\ncount = 8.0", Code::kWrongType,
              "`a.count` must be a whole number, not a decimal number", "write count = 8", "8.0"},
        Wrong{"[a]\ncount = 1.5", Code::kWrongType,
              "`a.count` must be a whole number, not a fraction",
              "`count` takes a whole number, at least 1", "1.5"},
        Wrong{"[a]\ncount = 99999999999999999999", Code::kOutOfRange,
              "`a.count` must be a number that fits in 64 bits, not 99999999999999999999",
              "`count` takes a whole number, at least 1", "99999999999999999999"},
        Wrong{"[a]\ncount = -99999999999999999999", Code::kOutOfRange,
              "`a.count` must be a number that fits in 64 bits, not -99999999999999999999",
              "`count` takes a whole number, at least 1", "-99999999999999999999"},
        Wrong{"[a]\ncount = 0", Code::kOutOfRange, "`a.count` must be at least 1, not 0",
              "`count` takes a whole number, at least 1", "0"},
        Wrong{"[a]\ncount = 1\nrate = 0", Code::kOutOfRange,
              "`a.rate` must be above 0 and at most 1, not 0",
              "`rate` takes a number, above 0 and at most 1; the default is 0.5", "0"},
        Wrong{"[a]\ncount = 1\nrate = nan", Code::kOutOfRange,
              "`a.rate` must be a finite number, not nan",
              "`rate` takes a number, above 0 and at most 1; the default is 0.5", "nan"},
        Wrong{"[a]\ncount = 1\nflag = 1", Code::kWrongType,
              "`a.flag` must be true or false, not a whole number",
              "`flag` takes true or false; the default is false", "1"},
        Wrong{"[a]\ncount = 1\nkind = \"bf61\"", Code::kUnknownChoice,
              "`a.kind` has no choice `bf61`",
              "did you mean `bf16`? the choices are `f32` and `bf16`", "\"bf61\""},
        Wrong{"[a]\ncount = 1\nkind = \"BFloat16\"", Code::kUnknownChoice,
              "`a.kind` has no choice `BFloat16`",
              "here it is called `bf16`; the choices are `f32` and `bf16`", "\"BFloat16\""},
        Wrong{"[a]\ncount = 1\nkind = \"fp16\"", Code::kUnknownChoice,
              "`a.kind` = \"fp16\" is refused: it is refused", "use one of `f32` or `bf16`",
              "\"fp16\""},
        Wrong{"[a]\ncoutn = 1", Code::kUnknownKey, "no key `coutn` in [a]", "did you mean `count`?",
              "coutn"},
        Wrong{"[a]\ncount = 1\nlist = [1]", Code::kUnknownKey, "no key `list` in [a]",
              "`list` belongs to [b]", "list"},
        Wrong{"foreign-name = 1\n[a]\ncount = 1", Code::kUnknownKey,
              "no key `foreign-name` in the test file", "here it is called `b.name`",
              "foreign-name"},
        Wrong{"[aa]\ncount = 1", Code::kUnknownKey, "no table [aa]", "did you mean `a`?", "aa"},
        Wrong{"[other]\ncount = 1\nlist = [1]", Code::kUnknownKey, "no table [other]",
              "its keys belong to `[a]` and `[b]`", "other"},
        Wrong{"a = 3", Code::kWrongType, "`a` must be a table, not a whole number",
              "write [a] and its keys below it", "3"},
        Wrong{"[a]\nrate = 1", Code::kMissingKey, "`a.count` is missing",
              "add count = ... to [a]: Count.", "a"},
        Wrong{"[a]\ncount = 1\n[b]\nlist = [1, -2]", Code::kOutOfRange,
              "`b.list[1]` must be at least 0, not -2",
              "`list` takes a list, each item a whole number, at least 0", "-2"},
        Wrong{"[a]\ncount = 1\n[b]\nname = 3", Code::kWrongType,
              "`b.name` must be text, not a whole number", "text needs quotes: name = \"3\"", "3"},
        Wrong{"[a]\ncount = 1\n[b]\nsize = true", Code::kWrongType,
              "`b.size` must be a size in bytes, not true or false",
              "`size` takes a size such as 1024 or \"64 MiB\"; the default is \"64 MiB\"",
              "true"}));

TEST(Check, SaysOfANumberWhatIsWrongWithIt) {
  const auto label = [](const std::string& text) {
    Report report;
    check(parse("[a]\ncount = 1\nrate = " + text, report), table(), report);
    return report.diagnostics().empty() ? "" : report.diagnostics()[0].primary.text;
  };
  EXPECT_EQ(label("nan"), "not finite");
  EXPECT_EQ(label("-inf"), "not finite");
  EXPECT_EQ(label("-1"), "too small");
  EXPECT_EQ(label("2"), "too large");
  EXPECT_EQ(label("99999999999999999999"), "too large");
  EXPECT_EQ(label("-99999999999999999999"), "too small");
}

TEST(Check, AnOversizedNumberHidesNoOtherMistake) {
  const std::string toml = "[a]\ncount = 99999999999999999999 # one\nrat = 1\nflag = 2\n";
  const std::string json = "{\"a\": {\"count\": 99999999999999999999, \"rat\": 1, \"flag\": 2}}";
  for (const auto& [text, format] : {std::pair{toml, Format::kToml}, {json, Format::kJson}}) {
    Report report;
    const auto document = parse_document(text, "t", format, report);
    ASSERT_TRUE(document) << report.text("t", false);
    check(*document, table(), report);
    std::vector<Code> codes;
    for (const Diagnostic& d : report.diagnostics()) codes.push_back(d.code);
    EXPECT_EQ(codes, (std::vector<Code>{Code::kOutOfRange, Code::kUnknownKey, Code::kWrongType}))
        << report.text("t", false);
    EXPECT_FALSE(Settings(document->root(), table()).integer("a.count"));
  }
}

TEST(Check, ReportsEveryMistakeAtOnce) {
  Report report;
  const Document document =
      parse("x = 1\n[a]\nrate = 2\nflag = 0\nkind = \"x\"\n[b]\nsize = -1\nlist = 3\n", report);
  check(document, table(), report);
  std::map<Code, int> codes;
  for (const Diagnostic& d : report.diagnostics()) ++codes[d.code];
  EXPECT_EQ(codes, (std::map<Code, int>{{Code::kUnknownKey, 1},
                                        {Code::kOutOfRange, 2},
                                        {Code::kWrongType, 2},
                                        {Code::kUnknownChoice, 1},
                                        {Code::kMissingKey, 1}}))
      << report.text("t.toml", false);
}

TEST(Check, PutsWhereBeforeTheKeysOfAPart) {
  Report report;
  const Document document = parse("[[part]]\ncount = 0\n", report);
  const FieldTable part("part",
                        {{.path = "count", .type = FieldType::kInt, .doc = "C.", .min = 1}});
  check(document.find("part")->value.items[0], part, report, "part[0].");
  EXPECT_EQ(report.diagnostics()[0].message, "`part[0].count` must be at least 1, not 0");
}

TEST(Settings, GivesWrittenValuesAndDefaults) {
  Report report;
  const Document document =
      parse("[a]\ncount = 3\nrate = 1\n[b]\nsize = \"2KiB\"\nlist = [4, 5]\n", report);
  check(document, table(), report);
  EXPECT_TRUE(report.ok()) << report.text("t.toml", false);
  const Settings settings(document.root(), table());
  EXPECT_EQ(settings.integer("a.count"), 3);
  EXPECT_EQ(settings.integer("top"), 7);
  EXPECT_EQ(settings.real("a.rate"), 1.0);
  EXPECT_EQ(settings.boolean("a.flag"), false);
  EXPECT_EQ(settings.text("a.kind"), "bf16");
  EXPECT_EQ(settings.bytes("b.size"), Bytes{2048});
  EXPECT_EQ(settings.text("b.name"), std::nullopt);
  EXPECT_EQ(settings.span("a.count"), (Span{"t.toml", 2, 1, 9}));
  EXPECT_FALSE(settings.span("top").known());
}

TEST(Settings, GivesNothingForARefusedValue) {
  Report report;
  const Document document = parse("top = \"x\"\n[a]\ncount = 0\n", report);
  const Settings settings(document.root(), table());
  EXPECT_EQ(settings.integer("top"), std::nullopt);
  EXPECT_EQ(settings.integer("a.count"), std::nullopt);
}

TEST(Settings, AskingForWhatDoesNotExistIsABug) {
  const Document document;
  const Settings settings(document.root(), table());
  EXPECT_THROW(static_cast<void>(settings.integer("a.nothing")), BrokenInvariant);
  EXPECT_THROW(static_cast<void>(settings.text("a.count")), BrokenInvariant);
}

TEST(FieldTable, RefusesContradictoryRows) {
  const Field field{.path = "x", .type = FieldType::kInt, .doc = "X.", .initial = "1"};
  EXPECT_THROW(FieldTable("t", {field, field}), BrokenInvariant);
  Field bad = field;
  bad.initial = "0";
  bad.min = 1;
  EXPECT_THROW(FieldTable("t", {bad}), BrokenInvariant);
  bad = field;
  bad.required = true;
  EXPECT_THROW(FieldTable("t", {bad}), BrokenInvariant);
}

TEST(Environment, StandsBetweenFileAndFlag) {
  Report report;
  Document document = parse("top = 1\n[a]\ncount = 1\n", report);
  const std::map<std::string, std::string> variables = {
      {"LOCKSTEP_TOP", "2"}, {"LOCKSTEP_A_COUNT", "2"}, {"LOCKSTEP_A_KIND", ""}, {"OTHER", "9"}};
  apply_environment(
      table(),
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      document, report);
  EXPECT_TRUE(apply_override("a.count=3", document, report));
  const Settings settings(document.root(), table());
  EXPECT_EQ(settings.integer("top"), 2);
  EXPECT_EQ(settings.integer("a.count"), 3);
  EXPECT_EQ(settings.text("a.kind"), "bf16");  // an empty variable is as good as none
  EXPECT_EQ(document.find("top")->value.origin, Origin::kEnvironment);
  EXPECT_EQ(document.find("a.count")->value.origin, Origin::kFlag);
}

TEST(Environment, AVariableOfATableThatIsNoKeyIsRefused) {
  Report report;
  const std::vector<std::string> names = {"HOME",           "LOCKSTEP_A_COUNT", "LOCKSTEP_A_CUONT",
                                          "LOCKSTEP_OTHER", "LOCKSTEP_TOP",     "LOCKSTEP_TOPS"};
  check_variables(table(), names, report);
  ASSERT_EQ(report.diagnostics().size(), 1u) << report.text("", false);
  const Diagnostic& d = report.diagnostics()[0];
  EXPECT_EQ(d.code, Code::kUnknownKey);
  EXPECT_EQ(d.message, "no key belongs to the variable `LOCKSTEP_A_CUONT`");
  EXPECT_EQ(d.help, "did you mean `LOCKSTEP_A_COUNT`?");
}

TEST(Pages, HoldEveryField) {
  const std::string text = fields_text(table(), 80);
  const std::string markdown = fields_markdown(table());
  const Json json = fields_json(table());
  ASSERT_EQ(json.items().size(), table().fields().size());
  for (const Field& field : table().fields()) {
    EXPECT_NE(text.find(field.path), std::string::npos);
    EXPECT_NE(markdown.find("| `" + field.path.substr(field.path.rfind('.') + 1) + "` |"),
              std::string::npos);
    EXPECT_NE(markdown.find(field.doc), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::config
