#include "lockstep/config/diagnostic.h"

#include <gtest/gtest.h>

#include "tests/support/golden.h"

namespace lockstep::config {
namespace {

constexpr const char* kFile =
    "[model]\nlayers = 32\n\n[layout]\n\ttp = 3\npp = 6\nname = \"\xe6\x97\xa5\xe6\x9c\xac\" # "
    "wide\n";

Sources sources() {
  Sources s;
  s.add("run.toml", kFile);
  return s;
}

Diagnostic contradiction(Span first, Span second) {
  return {.code = Code::kDoesNotDivide,
          .message = "pp = 6 does not divide 32 layers",
          .primary = {std::move(first), "six stages"},
          .secondary = {{std::move(second), "32 layers"}},
          .notes = {"stages are equal"},
          .help = "use 4 or 8"};
}

std::string without_escapes(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = text.find('m', i);
    else
      plain += text[i];
  }
  return plain;
}

TEST(Render, ShowsBothKeysOfAContradiction) {
  const Diagnostic d = contradiction({"run.toml", 6, 1, 6}, {"run.toml", 2, 1, 11});
  EXPECT_EQ(render(d, sources(), false),
            "error[LS0203]: pp = 6 does not divide 32 layers\n"
            " --> run.toml:6:1\n"
            "  |\n"
            "2 | layers = 32\n"
            "  | ----------- 32 layers\n"
            "...\n"
            "6 | pp = 6\n"
            "  | ^^^^^^ six stages\n"
            "  |\n"
            "  = note: stages are equal\n"
            "  = help: use 4 or 8\n"
            "  = see: lockstep explain LS0203\n");
}

TEST(Render, FillsAGapOfOneLineAndJoinsNeighbours) {
  const std::string gap =
      render(contradiction({"run.toml", 4, 1, 8}, {"run.toml", 2, 1, 11}), sources(), false);
  EXPECT_NE(gap.find("32 layers\n3 |\n4 | [layout]\n"), std::string::npos) << gap;
  EXPECT_EQ(gap.find("..."), std::string::npos) << gap;
}

TEST(Render, DrawsTwoLabelsOfOneLine) {
  Sources s;
  s.add("a.toml", "layout = { tp = 3, pp = 2 }\n");
  const std::string text =
      render(contradiction({"a.toml", 1, 12, 6}, {"a.toml", 1, 20, 6}), s, false);
  EXPECT_NE(text.find("1 | layout = { tp = 3, pp = 2 }\n"
                      "  |            ^^^^^^  ------ 32 layers\n"
                      "  |            |\n"
                      "  |            six stages\n"),
            std::string::npos)
      << text;
}

TEST(Render, PutsCaretsUnderTabsAndWideLetters) {
  Diagnostic tab = contradiction({"run.toml", 5, 7, 1}, {});
  EXPECT_NE(render(tab, sources(), false).find("5 |     tp = 3\n  |          ^ six stages\n"),
            std::string::npos);
  Diagnostic wide = contradiction({"run.toml", 7, 8, 4}, {});
  EXPECT_NE(render(wide, sources(), false).find("  |        ^^^^^^ six stages\n"),
            std::string::npos);
  Diagnostic after = contradiction({"run.toml", 7, 13, 6}, {});
  EXPECT_NE(render(after, sources(), false).find("  |               ^^^^^^ six stages\n"),
            std::string::npos)
      << render(after, sources(), false);
}

TEST(Render, NamesEachFileOfAContradiction) {
  Sources s = sources();
  s.add("base.toml", "layers = 32\n");
  const std::string text =
      render(contradiction({"run.toml", 6, 1, 6}, {"base.toml", 1, 1, 11}), s, false);
  EXPECT_LT(text.find(" --> run.toml:6:1"), text.find(" ::: base.toml:1:1")) << text;
}

TEST(Render, CutsLongLinesAroundTheMark) {
  Sources s;
  s.add("a.toml", std::string(500, 'x') + " = 1" + std::string(500, 'y'));
  const std::string text = render(contradiction({"a.toml", 1, 504, 1}, {}), s, false);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    EXPECT_LT(end - at, 160u);
    at = end + 1;
  }
  const std::size_t line = text.find("1 | ");
  const std::size_t caret = text.find('^') - text.rfind('\n', text.find('^'));
  EXPECT_EQ(text[line + caret - 1], '1') << text;
}

TEST(Render, ShowsAnOverrideByItsNameAlone) {
  Sources s;
  const int line = s.append_line("--set", "--set layout.tp=0");
  const std::string text = render(contradiction({"--set", line, 17, 1}, {}), s, false);
  EXPECT_NE(text.find(" --> --set\n  |\n  | --set layout.tp=0\n  |                 ^ six stages\n"),
            std::string::npos)
      << text;
}

TEST(Render, ColourAddsOnlyEscapes) {
  const Diagnostic d = contradiction({"run.toml", 6, 1, 6}, {"run.toml", 2, 1, 11});
  const std::string coloured = render(d, sources(), true);
  EXPECT_NE(coloured, render(d, sources(), false));
  EXPECT_EQ(without_escapes(coloured), render(d, sources(), false));
}

TEST(Render, NeverLetsAFileDriveTheTerminal) {
  Sources s;
  s.add("a.toml", "key\x1b[2J = \xff\x07 1 \xe2\x80\xae\n");
  Diagnostic d = contradiction({"a.toml", 1, 1, 3}, {});
  d.message = "no key `key\x1b[2J`";
  const std::string text = render(d, s, false);
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  EXPECT_EQ(text.find("\xe2\x80\xae"), std::string::npos);
}

TEST(Report, CountsAndSummarizes) {
  Report report;
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.text("run.toml", false), "");
  report.sources = sources();
  report.add(contradiction({"run.toml", 6, 1, 6}, {}));
  Diagnostic warning = contradiction({"run.toml", 2, 1, 6}, {});
  warning.severity = Severity::kWarning;
  report.add(warning);
  EXPECT_EQ(report.num_errors(), 1);
  const std::string text = report.text("run.toml", false);
  EXPECT_TRUE(text.ends_with("\n\nerror: 1 error, 1 warning in run.toml\n")) << text;
  EXPECT_EQ(report.first_error().message, "run.toml:6:1: pp = 6 does not divide 32 layers");
}

TEST(Report, IsTheSameInJson) {
  Report report;
  report.add(contradiction({"run.toml", 6, 1, 6}, {"run.toml", 2, 1, 11}));
  report.add(Error{Code::kFileUnreadable, "cannot read `x`", ""});
  const Json json = report.json("run.toml");
  EXPECT_EQ(json.find("schema")->as_text(), "lockstep.diagnostics/1");
  EXPECT_EQ(json.find("errors")->as_int(), 2);
  const Json& first = json.find("diagnostics")->items()[0];
  EXPECT_EQ(first.find("code")->as_text(), "LS0203");
  EXPECT_EQ(first.find("primary")->find("line")->as_int(), 6);
  EXPECT_EQ(first.find("secondary")->items()[0].find("label")->as_text(), "32 layers");
  EXPECT_TRUE(json.find("diagnostics")->items()[1].find("primary")->is_null());
}

TEST(Sources, LinesHaveNoLineEnd) {
  Sources s;
  s.add("a", "one\r\ntwo\nthree");
  EXPECT_EQ(s.line("a", 1), "one");
  EXPECT_EQ(s.line("a", 3), "three");
  EXPECT_EQ(s.line("a", 9), "");
  EXPECT_EQ(s.line("b", 1), "");
}

}  // namespace
}  // namespace lockstep::config
