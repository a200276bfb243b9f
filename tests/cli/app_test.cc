#include "cli/app.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "cli/help.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

using Variables = std::map<std::string, std::string>;

struct Ran {
  ExitCode code = ExitCode::kBug;
  std::string out, err;
};

Surroundings surroundings(Variables variables, bool is_terminal = false) {
  return {.lookup = [variables = std::move(variables)](
                        const std::string& name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
          },
          .out_is_terminal = is_terminal,
          .err_is_terminal = is_terminal};
}

Ran run(std::vector<std::string> words, const std::vector<Verb>& verbs = catalog(),
        const Surroundings& around = surroundings({})) {
  std::ostringstream out, err;
  Ran ran;
  ran.code = run_lockstep(verbs, std::move(words), around, out, err);
  ran.out = out.str();
  ran.err = err.str();
  return ran;
}

// Runs where the example files lie, so that messages name them without a directory.
class Examples : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(support::source_dir() + "/tests/golden/cli");
  }
  void TearDown() override { std::filesystem::current_path(before_); }
  std::filesystem::path before_;
};

TEST_F(Examples, FiveMistakesAreFiveDiagnostics) {
  const Ran text = run({"config", "check", "five_mistakes.toml"});
  EXPECT_EQ(text.code, ExitCode::kUsage);
  EXPECT_EQ(text.out, "");
  EXPECT_TRUE(support::matches_golden("cli/five_mistakes.txt", text.err));

  const Ran json = run({"config", "check", "five_mistakes.toml", "--json"});
  EXPECT_EQ(json.code, ExitCode::kUsage);
  EXPECT_EQ(json.out, "");
  EXPECT_TRUE(support::matches_golden("cli/five_mistakes.json", json.err));
  const Result<Json> parsed = Json::parse(json.err);
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->find("diagnostics")->items().size(), 5u);
  std::vector<std::string> codes;
  for (const Json& diagnostic : parsed->find("diagnostics")->items()) {
    codes.push_back(diagnostic.find("code")->as_text());
    EXPECT_GT(diagnostic.find("primary")->find("line")->as_int(), 0);
    EXPECT_FALSE(diagnostic.find("help")->as_text().empty());
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"LS0102", "LS0101", "LS0103", "LS0104", "LS0105"}));
}

TEST_F(Examples, ContradictionsShowBothKeys) {
  const Ran ran = run({"config", "check", "contradictions.toml"});
  EXPECT_EQ(ran.code, ExitCode::kUsage);
  EXPECT_TRUE(support::matches_golden("cli/contradictions.txt", ran.err));
}

TEST_F(Examples, AGoodFileIsSummedUp) {
  const Ran ran = run({"config", "check", "good.toml"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_TRUE(support::matches_golden("cli/good_check.txt", ran.out));
  const Result<Json> json = Json::parse(run({"config", "check", "good.toml", "--json"}).out);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->find("spec")->find("layout")->find("dp")->as_int(), 8);
}

TEST_F(Examples, ShowNamesTheOriginOfEveryValue) {
  const Ran ran = run({"config", "show", "good.toml", "--origin", "--set", "layout.pp=4"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_TRUE(support::matches_golden("cli/good_show.txt", ran.out));
}

TEST_F(Examples, AnOverrideIsCheckedLikeAFile) {
  const Ran ran = run({"config", "check", "good.toml", "--set", "layout.tp=0"});
  EXPECT_EQ(ran.code, ExitCode::kUsage);
  EXPECT_NE(ran.err.find(" --> --set\n"), std::string::npos) << ran.err;
}

void check_help(const std::vector<Verb>& verbs, const std::string& path) {
  for (const Verb& verb : verbs) {
    const std::string own = path.empty() ? verb.name : path + " " + verb.name;
    std::string file = own;
    std::ranges::replace(file, ' ', '_');
    const std::string page = verb_help(verb, own, 80, false);
    EXPECT_TRUE(support::matches_golden("cli/help/" + file + ".txt", page));
    for (std::size_t at = 0; at < page.size(); at = page.find('\n', at) + 1)
      EXPECT_LE(page.find('\n', at) - at, 80u) << page.substr(at, 100);
    EXPECT_FALSE(verb.examples.empty()) << own;
    EXPECT_EQ(verb.run == nullptr, !verb.verbs.empty()) << own;
    check_help(verb.verbs, own);
  }
}

TEST(Help, OfEveryVerbIsAsReviewed) {
  EXPECT_TRUE(support::matches_golden("cli/help/lockstep.txt", main_help(catalog(), 80, false)));
  check_help(catalog(), "");
}

TEST(Help, IsTheSameHoweverItIsAskedFor) {
  const std::string page = run({"help", "config", "check"}).out;
  EXPECT_EQ(run({"config", "check", "--help"}).out, page);
  EXPECT_EQ(run({"config", "check", "-h", "whatever"}).out, page);
  EXPECT_EQ(run({}).out, run({"--help"}).out);
  EXPECT_EQ(run({}).out, run({"help"}).out);
  EXPECT_EQ(run({}).code, ExitCode::kOk);
  EXPECT_TRUE(Json::parse(run({"help", "--json"}).out).ok());
}

struct Mistake {
  std::vector<std::string> words;
  ExitCode code;
  std::string message, help;
};

class CommandLine : public testing::TestWithParam<Mistake> {};

TEST_P(CommandLine, MistakeIsExplained) {
  const Ran ran = run(GetParam().words);
  EXPECT_EQ(ran.code, GetParam().code);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find(GetParam().message + "\n"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("help: " + GetParam().help), std::string::npos) << ran.err;

  std::vector<std::string> words = GetParam().words;
  words.insert(words.begin(), "--json");
  const Ran json = run(words);
  EXPECT_EQ(json.code, GetParam().code);
  const Result<Json> parsed = Json::parse(json.err);
  ASSERT_TRUE(parsed.ok()) << json.err;
  EXPECT_EQ(parsed->find("schema")->as_text(), "lockstep.diagnostics/1");
}

INSTANTIATE_TEST_SUITE_P(
    Each, CommandLine,
    testing::Values(Mistake{{"cofnig"},
                            ExitCode::kUsage,
                            "error[LS0001]: no command `cofnig`",
                            "did you mean `config`?"},
                    Mistake{{"config", "chek", "x"},
                            ExitCode::kUsage,
                            "error[LS0001]: no command `config chek`",
                            "did you mean `check`?"},
                    Mistake{{"help", "confg"},
                            ExitCode::kUsage,
                            "error[LS0001]: no command `confg`",
                            "did you mean `config`?"},
                    Mistake{{"config"},
                            ExitCode::kUsage,
                            "error[LS0001]: `lockstep config` needs a command",
                            "there are `check`, `show` and `fields`"},
                    Mistake{{"config", "check", "--sett", "a=1", "x"},
                            ExitCode::kUsage,
                            "error[LS0002]: `lockstep config check` has no option `--sett`",
                            "did you mean `--set`?"},
                    Mistake{{"config", "check", "-set=a", "x"},
                            ExitCode::kUsage,
                            "error[LS0002]: `lockstep config check` has no option `-set`",
                            "did you mean `--set`?"},
                    Mistake{{"config", "check", "x", "--jsno"},
                            ExitCode::kUsage,
                            "error[LS0002]: `lockstep config check` has no option `--jsno`",
                            "did you mean `--json`?"},
                    Mistake{{"config", "check"},
                            ExitCode::kUsage,
                            "error[LS0003]: `lockstep config check` needs FILE",
                            "usage: lockstep config check [OPTIONS] FILE"},
                    Mistake{{"config", "check", "a", "b"},
                            ExitCode::kUsage,
                            "error[LS0002]: `lockstep config check` takes no further argument: `b`",
                            "usage: lockstep config check [OPTIONS] FILE"},
                    Mistake{{"config", "check", "a", "--set"},
                            ExitCode::kUsage,
                            "error[LS0003]: --set needs a value",
                            "write --set KEY=VALUE"},
                    Mistake{{"config", "show", "--origin=yes"},
                            ExitCode::kUsage,
                            "error[LS0003]: --origin is a flag and takes no value",
                            "write --origin alone"},
                    Mistake{{"--color", "blue", "explain"},
                            ExitCode::kUsage,
                            "error[LS0003]: --color has no choice \"blue\"",
                            "the choices are `auto`, `always` and `never`"},
                    Mistake{{"explain", "LS9999"},
                            ExitCode::kUsage,
                            "error[LS0003]: no error code `LS9999`",
                            "`lockstep explain` lists all codes"},
                    Mistake{{"config", "fields", "layuot"},
                            ExitCode::kUsage,
                            "error[LS0101]: no key or table `layuot`",
                            "did you mean `layout`?"},
                    Mistake{{"config", "check", "/"},
                            ExitCode::kEnvironment,
                            "error[LS0004]: cannot read `/`: it is a directory",
                            "name a file in it"}));

TEST(Explain, KnowsEveryCode) {
  const std::string list = run({"explain"}).out;
  for (const CodeRow& row : code_table()) {
    EXPECT_NE(list.find(to_text(row.code)), std::string::npos);
    const Ran one = run({"explain", to_text(row.code)});
    EXPECT_EQ(one.code, ExitCode::kOk);
    EXPECT_NE(one.out.find(row.explanation), std::string::npos);
    const Result<Json> json = Json::parse(run({"explain", to_text(row.code), "--json"}).out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->find("codes")->items()[0].find("title")->as_text(), row.title);
  }
}

TEST(Colour, FollowsFlagThenVariablesThenTerminal) {
  struct Case {
    const char* choice;
    Variables variables;
    bool terminal, colour;
  };
  const Case cases[] = {
      {"auto", {}, false, false},
      {"auto", {}, true, true},
      {"auto", {{"TERM", "dumb"}}, true, false},
      {"auto", {{"NO_COLOR", "1"}}, true, false},
      {"auto", {{"NO_COLOR", ""}}, true, true},
      {"auto", {{"CLICOLOR_FORCE", "1"}}, false, true},
      {"auto", {{"FORCE_COLOR", "1"}}, false, true},
      {"auto", {{"FORCE_COLOR", "0"}}, false, false},
      {"auto", {{"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "1"}}, false, false},
      {"always", {{"NO_COLOR", "1"}}, false, true},
      {"never", {{"CLICOLOR_FORCE", "1"}}, true, false},
  };
  for (const Case& c : cases) {
    const Surroundings around = surroundings(c.variables, c.terminal);
    EXPECT_EQ(use_colour(c.choice, around.lookup, c.terminal), c.colour) << c.choice;
    const Ran ran = run({"--color", c.choice, "nothing"}, catalog(), around);
    EXPECT_EQ(ran.err.find('\x1b') != std::string::npos, c.colour) << ran.err;
  }
}

Verb probe(ExitCode (*body)(const Args&, Output&)) {
  return {.name = "probe",
          .summary = "Test",
          .options = {{.name = "count",
                       .value = "N",
                       .type = OptionType::kInt,
                       .initial = "3",
                       .env = "PROBE_COUNT",
                       .min = 1,
                       .max = 9},
                      {.name = "rate", .value = "R", .type = OptionType::kReal},
                      {.name = "size", .value = "S", .type = OptionType::kBytes},
                      {.name = "mode",
                       .value = "M",
                       .type = OptionType::kChoice,
                       .choices = {"fast", "slow"}},
                      {.name = "many", .value = "X", .repeated = true},
                      {.name = "loud"}},
          .positionals = {{.name = "FIRST", .required = false},
                          {.name = "REST", .required = false, .repeated = true}},
          .run = body};
}

ExitCode print_args(const Args& args, Output& output) {
  output.out << args.integer("count") << (args.flag("loud") ? " loud" : "");
  if (args.has("rate")) output.out << " rate " << args.real("rate");
  if (args.has("size")) output.out << " size " << args.bytes("size").value;
  if (args.has("mode")) output.out << " mode " << args.text("mode");
  for (const std::string& text : args.texts("many")) output.out << " many " << text;
  if (args.has("FIRST")) output.out << " first " << args.text("FIRST");
  for (const std::string& text : args.texts("REST")) output.out << " rest " << text;
  return ExitCode::kOk;
}

TEST(Args, AreReadInEverySpelling) {
  const std::vector<Verb> verbs = {probe(print_args)};
  EXPECT_EQ(run({"probe"}, verbs).out, "3");
  EXPECT_EQ(run({"probe", "--count=5", "--loud"}, verbs).out, "5 loud");
  EXPECT_EQ(run({"probe", "a", "--count", "5", "b", "c"}, verbs).out, "5 first a rest b rest c");
  EXPECT_EQ(run({"probe", "--rate", "-2.5", "--size", "2KiB", "--mode=slow"}, verbs).out,
            "3 rate -2.5 size 2048 mode slow");
  EXPECT_EQ(run({"probe", "--many", "x", "--many=--y"}, verbs).out, "3 many x many --y");
  EXPECT_EQ(run({"probe", "--", "--loud", "-x"}, verbs).out, "3 first --loud rest -x");
  EXPECT_EQ(run({"probe", "--", "--json"}, verbs).out, "3 first --json");
  EXPECT_EQ(run({"probe", "-5"}, verbs).out, "3 first -5");
}

TEST(Args, ComeFromTheEnvironmentWhenNotGiven) {
  const std::vector<Verb> verbs = {probe(print_args)};
  const Surroundings around = surroundings({{"PROBE_COUNT", "7"}});
  EXPECT_EQ(run({"probe"}, verbs, around).out, "7");
  EXPECT_EQ(run({"probe", "--count", "2"}, verbs, around).out, "2");
  EXPECT_EQ(run({"probe"}, verbs, surroundings({{"PROBE_COUNT", "x"}})).code, ExitCode::kUsage);
}

TEST(Args, AreCheckedAgainstTheTable) {
  const std::vector<Verb> verbs = {probe(print_args)};
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"probe", "--count", "0"},
                                             {"probe", "--count", "10"},
                                             {"probe", "--count", "1.5"},
                                             {"probe", "--count", "5x"},
                                             {"probe", "--count", ""},
                                             {"probe", "--count=1", "--count=2"},
                                             {"probe", "--rate", "nan"},
                                             {"probe", "--rate", "fast"},
                                             {"probe", "--size", "-1"},
                                             {"probe", "--size", "big"},
                                             {"probe", "--mode", "fats"}}) {
    const Ran ran = run(words, verbs);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << words.back();
    EXPECT_TRUE(ran.err.starts_with("error[LS0003]: --")) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
}

TEST(ExitCodes, FollowTheKindOfFailure) {
  const auto code_of = [](ExitCode (*body)(const Args&, Output&)) {
    return run({"probe"}, {probe(body)});
  };
  EXPECT_EQ(code_of([](const Args&, Output&) { return ExitCode::kCheckFailed; }).code,
            ExitCode::kCheckFailed);
  const Ran bug = code_of([](const Args&, Output&) -> ExitCode {
    LS_CHECK(false, "planted");
    return ExitCode::kOk;
  });
  EXPECT_EQ(bug.code, ExitCode::kBug);
  EXPECT_NE(bug.err.find("planted"), std::string::npos);
  EXPECT_NE(bug.err.find("bug in Lockstep"), std::string::npos);
  EXPECT_EQ(code_of([](const Args&, Output&) -> ExitCode {
              throw WorldError({Code::kPeerLost, "rank 3 is gone", ""});
            }).code,
            ExitCode::kRunFailed);
  EXPECT_EQ(code_of([](const Args&, Output&) -> ExitCode {
              throw IoError({Code::kFileUnreadable, "no file", ""});
            }).code,
            ExitCode::kEnvironment);
  EXPECT_EQ(code_of([](const Args&, Output&) -> ExitCode { throw 3; }).code, ExitCode::kBug);
}

TEST(ExitCodes, EveryCodeHasOne) {
  for (const CodeRow& row : code_table()) EXPECT_NE(exit_code_of(row.code), ExitCode::kOk);
  EXPECT_EQ(exit_code_of(Code::kNeedsTorch), ExitCode::kEnvironment);
  EXPECT_EQ(exit_code_of(Code::kSyntax), ExitCode::kUsage);
}

TEST(Torch, AVerbThatNeedsItSaysSoInACoreBuild) {
  Verb verb = probe(print_args);
  verb.needs_torch = true;
  const Ran ran = run({"probe"}, {verb});
  EXPECT_EQ(ran.code, LOCKSTEP_WITH_TORCH ? ExitCode::kOk : ExitCode::kEnvironment);
  EXPECT_EQ(ran.err.find("error[LS0601]") == 0, !LOCKSTEP_WITH_TORCH) << ran.err;
}

}  // namespace
}  // namespace lockstep::cli
