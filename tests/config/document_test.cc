#include "lockstep/config/document.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

namespace lockstep::config {
namespace {

std::optional<Document> toml(const std::string& text, Report& report) {
  return parse_document(text, "run.toml", Format::kToml, report);
}

Document must_parse(const std::string& text, Format format = Format::kToml) {
  Report report;
  auto document = parse_document(text, "run.toml", format, report);
  EXPECT_TRUE(document) << report.text("", false);
  return document.value_or(Document());
}

// The text a span covers; ASCII sources only.
std::string covered(const Report& report, const Span& span) {
  return std::string(report.sources.line(span.file, span.line))
      .substr(static_cast<std::size_t>(span.column - 1), static_cast<std::size_t>(span.length));
}

// Calls `visit` with every key and leaf value.
void walk(const Value& value, const std::function<void(const Entry&)>& visit) {
  for (const Entry& entry : value.entries) {
    visit(entry);
    walk(entry.value, visit);
  }
}

std::string random_leaf(std::mt19937& random) {
  switch (random() % 5) {
    case 0:
      return std::to_string(static_cast<int>(random() % 1000));
    case 1:
      return random() % 2 ? "true" : "false";
    case 2:
      return std::to_string(random() % 100) + ".5";
    case 3:
      return "\"text " + std::to_string(random() % 10) + "\"";
    default:
      return "[1, " + std::to_string(random() % 10) + "]";
  }
}

TEST(Toml, EverySpanCoversWhatWasWritten) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::pair<std::string, std::string>> written;
    std::string text;
    for (int section = 0; section < 3; ++section) {
      text += std::string(random() % 3, '\n') + "[s" + std::to_string(section) + "]\n";
      for (int key = 0; key < 4; ++key) {
        const std::string name = "key_" + std::to_string(section) + std::to_string(9 - key);
        written.emplace_back(name, random_leaf(random));
        text += std::string(random() % 3, ' ') + name + std::string(random() % 3, ' ') + "=" +
                std::string(random() % 3, '\t') + written.back().second + " # note\n";
      }
    }
    Report report;
    const auto document = toml(text, report);
    ASSERT_TRUE(document) << report.text("", false);
    std::size_t next = 0;
    walk(document->root(), [&](const Entry& entry) {
      if (entry.value.kind == ValueKind::kTable) return;
      ASSERT_LT(next, written.size());
      EXPECT_EQ(covered(report, entry.key_span), written[next].first);  // order as written
      EXPECT_EQ(covered(report, entry.value.span), written[next].second);
      ++next;
    });
    EXPECT_EQ(next, written.size());
  }
}

TEST(Toml, TextOfATreeParsesBackToIt) {
  const Document document = must_parse(
      "a = 1\nb = -2.5\nc = \"q\\\"\\\\\\n\\u0007\"\nd = [1, 2]\n[e]\nf = true\ng = 1e300\nh = "
      "2.0\n");
  const Document again = must_parse("x = " + to_text(document.root()));
  EXPECT_EQ(to_text(again.root().entries[0].value), to_text(document.root()));
  EXPECT_EQ(to_json(again.root().entries[0].value), to_json(document.root()));
}

struct Mistake {
  std::string text;
  int line, column;
  std::string message, help;
};

class TomlMistake : public testing::TestWithParam<Mistake> {};

TEST_P(TomlMistake, IsExplainedAtItsPlace) {
  Report report;
  EXPECT_FALSE(toml(GetParam().text, report));
  ASSERT_EQ(report.diagnostics().size(), 1u);
  const Diagnostic& d = report.diagnostics()[0];
  EXPECT_EQ(d.code, Code::kSyntax);
  EXPECT_EQ(d.message, GetParam().message);
  EXPECT_EQ(d.help, GetParam().help);
  EXPECT_EQ(d.primary.span.line, GetParam().line);
  EXPECT_EQ(d.primary.span.column, GetParam().column);
}

INSTANTIATE_TEST_SUITE_P(
    Common, TomlMistake,
    testing::Values(
        Mistake{"a = 1\ndtype = bf16\n", 2, 9, "text needs quotes", "write dtype = \"bf16\""},
        Mistake{"a = True", 1, 5, "`True` is not a value", "write a = true"},
        Mistake{"a = off # x", 1, 5, "`off` is not a value", "write a = false"},
        Mistake{"a = none", 1, 5, "TOML has no `none`", "leave the key out"},
        Mistake{"sch\u00e9ma = 1", 1, 1,
                "a key without quotes has only letters a to z, digits, `_` and `-`",
                "no key of ours has others; where one is meant, quote it"},
        Mistake{"a =", 1, 1, "key `a` has no value", "write a = ..."},
        Mistake{"a: 3", 1, 2, "TOML writes `key = value`, with an equals sign", "write a = 3"},
        Mistake{"a == 3", 1, 4, "one `=` is enough", "write a = 3"},
        Mistake{"a = 8,", 1, 6, "a comma after a value", "remove it; each key has its own line"},
        Mistake{"a = 1 b = 2", 1, 7, "two keys on one line", "give each key its own line"},
        Mistake{"a = 012", 1, 5, "`012` begins with a zero", "remove the leading zeros"},
        Mistake{"a = 1.", 1, 5, "`1.` is not a well-formed number",
                "a decimal point needs a digit on both sides: 1.0, 0.5"},
        Mistake{"a = \"x\nb = 1", 1, 5, "this text has no closing quote", "end it with a `\"`"},
        Mistake{"x = [1,\n 2\ny = 1", 1, 5, "this list is not closed",
                "separate its items with `,` and end it with `]`"},
        Mistake{"[layout\ntp = 1", 1, 1, "this table header is not well-formed", "write [layout]"},
        Mistake{"tp", 1, 1, "this is no `key = value`",
                "write key = value, [table], or # before a comment"},
        Mistake{"a = 0xFFFFFFFFFFFFFFFF", 1, 5, "`0xFFFFFFFFFFFFFFFF` does not fit in 64 bits",
                ""}));

TEST(Toml, ASecondDefinitionShowsTheFirst) {
  Report report;
  EXPECT_FALSE(toml("[a]\nx = 1\ny = 2\nx = 3\n", report));
  const Diagnostic& d = report.diagnostics()[0];
  EXPECT_EQ(d.message, "key `x` is set twice");
  EXPECT_EQ(d.primary.span, (Span{"run.toml", 4, 1, 1}));
  ASSERT_EQ(d.secondary.size(), 1u);
  EXPECT_EQ(d.secondary[0].span, (Span{"run.toml", 2, 1, 1}));
}

TEST(Toml, JunkGivesOneDiagnosticInsideTheFile) {
  std::mt19937 random(11);
  const std::string seed = "[model]\nname = \"a\"\nlist = [1, 2.5]\n[layout]\ntp = 8\nt = {x=1}\n";
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed;
    for (int edit = 0; edit < 3; ++edit)
      text[random() % text.size()] = static_cast<char>(random() % 256);
    Report report;
    const auto document = toml(text, report);
    EXPECT_EQ(report.diagnostics().size(), document ? 0u : 1u);
    if (document) continue;
    const Span& span = report.diagnostics()[0].primary.span;
    EXPECT_GE(span.line, 1);
    EXPECT_LE(span.line, 8);
    EXPECT_GE(span.column, 1);
    EXPECT_FALSE(render(report.diagnostics()[0], report.sources, false).empty());
  }
}

TEST(JsonText, EverySpanCoversWhatWasWritten) {
  const std::string text = "{\n  \"a\": 12,\n  \"b\": {\"c\": \"x y\", \"d\": [1, 2]}\n}\n";
  Report report;
  const auto document = parse_document(text, "run.json", Format::kJson, report);
  ASSERT_TRUE(document);
  EXPECT_EQ(covered(report, document->find("a")->value.span), "12");
  EXPECT_EQ(covered(report, document->find("b.c")->key_span), "\"c\"");
  EXPECT_EQ(covered(report, document->find("b.c")->value.span), "\"x y\"");
  EXPECT_EQ(covered(report, document->find("b.d")->value.span), "[1, 2]");
}

// base/json.h is an independent reader of the same language.
TEST(JsonText, AcceptsAndRefusesWhatTheOtherReaderDoes) {
  std::mt19937 random(5);
  const std::string seed =
      "{\"a\": [1, -2.5e3, true], \"b\": {\"c\": \"x\\n\\u00e9\"}, \"d\": false, \"e\": 0.25}";
  const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn\\ux \t\n";
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (int edit = 0; edit < 2; ++edit)
      text[random() % text.size()] = alphabet[random() % alphabet.size()];
    Report report;
    const auto ours = parse_document(text, "run.json", Format::kJson, report);
    const Result<Json> theirs = Json::parse(text);
    const bool has_null = text.find("null") != std::string::npos;
    if (!has_null) {
      EXPECT_EQ(ours.has_value(), theirs.ok()) << text;
    }
    if (!ours || !theirs.ok()) continue;
    ++accepted;
    EXPECT_EQ(to_json(ours->root()), *theirs) << text;
  }
  EXPECT_GT(accepted, 500);
}

TEST(JsonText, RefusesWhatHasNoPlaceInAFile) {
  for (const char* text : {"", "[]", "3", "{\"a\": null}", "{\"a\":1} x", "{\"a\":1,\"a\":2}"}) {
    Report report;
    EXPECT_FALSE(parse_document(text, "run.json", Format::kJson, report)) << text;
    EXPECT_EQ(report.num_errors(), 1) << text;
  }
  Report report;
  EXPECT_FALSE(parse_document("{\"a\":" + std::string(100000, '['), "x", Format::kJson, report));
}

TEST(Document, MergeReplacesLeavesAndJoinsTables) {
  Document base = must_parse("[a]\nx = 1\ny = [1, 2]\n[b]\nz = 1\n");
  base.merge(must_parse("[a]\nx = 5\nw = 6\ny = [9]\n"));
  EXPECT_EQ(to_text(base.root()), "{ a = { x = 5, y = [9], w = 6 }, b = { z = 1 } }");
}

TEST(Override, ReadsTomlAndTakesBareWordsAsText) {
  Document document = must_parse("[layout]\ntp = 1\n");
  Report report;
  for (const char* text : {"layout.tp=8", "train.dtype=bf16", "model.name=\"a b\"", "x.y.z=[1, 2]",
                           "train.lr=1e-4", "cluster.name=h100:64", "layout.sp = false"})
    EXPECT_TRUE(apply_override(text, document, report)) << text;
  EXPECT_EQ(to_text(document.root()),
            "{ layout = { tp = 8, sp = false }, train = { dtype = \"bf16\", lr = 1e-4 }, model = { "
            "name = \"a b\" }, x = { y = { z = [1, 2] } }, cluster = { name = \"h100:64\" } }");
  EXPECT_EQ(document.find("layout.tp")->value.origin, Origin::kFlag);
  EXPECT_EQ(covered(report, document.find("layout.tp")->value.span), "8");
  EXPECT_EQ(covered(report, document.find("train.dtype")->value.span), "bf16");
}

TEST(Override, RefusesWhatIsNoAssignment) {
  for (const char* text :
       {"", "layout.tp", "=3", "layout.tp=", "a..b=1", ".a=1", "a b=1", "a=[1", "a=\"x", "a={"}) {
    Document document;
    Report report;
    EXPECT_FALSE(apply_override(text, document, report)) << text;
    EXPECT_EQ(report.num_errors(), 1) << text;
    EXPECT_TRUE(document.root().entries.empty()) << text;
  }
}

TEST(Override, CanNotSmuggleInASecondKey) {
  Document document;
  Report report;
  EXPECT_TRUE(apply_override("a=1\nb=2", document, report));
  EXPECT_EQ(document.find("b"), nullptr);
  EXPECT_EQ(document.find("a")->value.text, "1\nb=2");
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("lockstep_document_" + std::to_string(::getpid()) + "_" +
            testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_ / "sub");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return (dir_ / name).string();
  }
  std::filesystem::path dir_;
};

TEST_F(Files, ExtendsIsRelativeAndWeakerThanTheFile) {
  write("base.toml", "[layout]\ntp = 1\npp = 2\n");
  write("sub/mid.toml", "extends = \"../base.toml\"\n[layout]\npp = 3\ncp = 3\n");
  const std::string run = write("run.toml", "extends = \"sub/mid.toml\"\n[layout]\ncp = 4\n");
  Report report;
  const auto document = load_document(run, report);
  ASSERT_TRUE(document) << report.text("", false);
  EXPECT_EQ(to_text(document->root()), "{ layout = { tp = 1, pp = 3, cp = 4 } }");
  EXPECT_EQ(document->find("layout.tp")->value.origin, Origin::kBase);
  EXPECT_EQ(document->find("layout.cp")->value.origin, Origin::kFile);
}

TEST_F(Files, ACircleOfBasesIsRefused) {
  write("a.toml", "extends = \"b.toml\"\n");
  write("b.toml", "extends = \"./sub/../a.toml\"\n");
  Report report;
  EXPECT_FALSE(load_document((dir_ / "a.toml").string(), report));
  EXPECT_EQ(report.first_error().code, Code::kConflict);
}

TEST_F(Files, JsonIsKnownByItsFirstLetter) {
  const std::string run = write("run.conf", "\n {\"layout\": {\"tp\": 2}}");
  Report report;
  const auto document = load_document(run, report);
  ASSERT_TRUE(document) << report.text("", false);
  EXPECT_EQ(document->find("layout.tp")->value.integer, 2);
}

TEST_F(Files, UnreadableOnesSayWhy) {
  const std::string far = write("far.toml", "extends = \"nowhere.toml\"\n");
  for (const std::string& path : {(dir_ / "none.toml").string(), dir_.string(), far}) {
    Report report;
    EXPECT_FALSE(load_document(path, report));
    EXPECT_EQ(report.first_error().code, Code::kFileUnreadable) << path;
  }
}

// `open` many times, then what closes it.
std::string nested(int depth, const std::string& open, const std::string& inside,
                   const std::string& close = "") {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += inside;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

struct Nesting {
  const char* name;
  Format format;
  std::string (*text)(int depth);
};

const Nesting kNestings[] = {
    {"header", Format::kToml, [](int d) { return "[" + nested(d - 1, "a.", "a]\nb = 1\n"); }},
    {"list of tables", Format::kToml, [](int d) { return "[[" + nested(d - 1, "a.", "a]]\n"); }},
    {"quoted header", Format::kToml,
     [](int d) { return "[" + nested(d - 1, "\"a.b\" . ", "'c' ]\n"); }},
    {"dotted key", Format::kToml, [](int d) { return nested(d - 1, "a.", "a = 1\n"); }},
    {"list", Format::kToml, [](int d) { return "v = " + nested(d, "[", "", "]") + "\n"; }},
    {"list on lines", Format::kToml,
     [](int d) { return "v = " + nested(d, "[ # [\n", "'[', 1.5", "\n]") + "\n"; }},
    {"inline table", Format::kToml,
     [](int d) { return "v = " + nested(d, "{a = ", "1", "}") + "\n"; }},
    {"dots in inline tables", Format::kToml,
     [](int d) { return "v = " + nested(d / 4, "{a.a.a.a = ", "1", "}") + "\n"; }},
    {"name and list", Format::kToml,
     [](int d) {
       return nested(d / 2 - 1, "b.", "b = ") + nested(d / 2, "[", "\"\"\"]\\\"]\"\"\"", "]") +
              "\n";
     }},
    {"behind texts that end in quotes", Format::kToml,
     [](int d) {
       return R"(v = {q = """x\"""""", r = "\"", s = ''''''', )" + nested(d - 2, "a.", "a = 1}\n");
     }},
    {"never closed", Format::kToml, [](int d) { return "v = " + nested(d, "[", ""); }},
    {"JSON list", Format::kJson, [](int d) { return "{\"v\": " + nested(d, "[", "1", "]") + "}"; }},
    {"JSON object", Format::kJson, [](int d) { return nested(d, "{\"a\": ", "1", "}"); }},
    {"JSON never closed", Format::kJson, [](int d) { return nested(d, "{\"a\": [", ""); }},
};

TEST(Document, NestingBeyondTheLimitIsRefusedAtOnce) {
  for (const Nesting& nesting : kNestings)
    for (const int depth : {kMaxNesting + 20, 10'000, 20'000, 100'000}) {
      const std::string text = nesting.text(depth);
      Report report;
      const std::clock_t begin = std::clock();
      EXPECT_FALSE(parse_document(text, "run.toml", nesting.format, report)) << nesting.name;
      const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      EXPECT_LT(seconds, 0.1) << nesting.name << " of depth " << depth;
      ASSERT_FALSE(report.diagnostics().empty());
      EXPECT_EQ(report.diagnostics()[0].message, "nested deeper than 64 levels") << nesting.name;
    }
}

TEST(Document, NestingUpToTheLimitIsRead) {
  for (const Nesting& nesting : kNestings) {
    if (std::string_view(nesting.name).ends_with("never closed")) continue;
    Report report;
    EXPECT_TRUE(parse_document(nesting.text(kMaxNesting - 4), "run.toml", nesting.format, report))
        << nesting.name << ": " << report.text("", false);
  }
  // What only looks like it: brackets and dots in texts and comments, many reals, many headers.
  std::string text = "a = [" + nested(500, "1.5, -2.5e1, ", "") + "]\n";
  text += "b = \"" + nested(500, "[{.\\\"", "") + "\" # " + nested(500, "[.", "") + "\n";
  text += "c = '''" + nested(500, "[\n'.", "") + "'''\nd = '" + nested(500, "[.", "") + "'\n";
  for (int i = 0; i < 500; ++i)
    text += "[t.x" + std::to_string(i) + "]\nlr = 0.1\nwarmup = {steps.first = 1.5}\n[[u.v]]\n";
  EXPECT_EQ(must_parse(text).root().entries.size(), 6u);
}

TEST(Document, AnOverrideNestsNoDeeperThanAFile) {
  for (const int depth : {kMaxNesting + 1, 60'000}) {
    Document document;
    Report report;
    EXPECT_FALSE(apply_override(nested(depth - 1, "a.", "a=1"), document, report));
    EXPECT_FALSE(apply_override("a=" + nested(depth, "[", "", "]"), document, report));
  }
  Document document;
  Report report;
  EXPECT_TRUE(apply_override(nested(kMaxNesting - 1, "a.", "a=1"), document, report));
}

}  // namespace
}  // namespace lockstep::config
