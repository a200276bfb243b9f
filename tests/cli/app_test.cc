#include "cli/app.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "cli/help.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

using Variables = std::map<std::string, std::string>;

struct Answered {
  ExitCode code = ExitCode::kBug;
  std::string out, err;
};

Environment environment(Variables variables, bool is_terminal = false) {
  return {.lookup = [variables = std::move(variables)](
                        const std::string& name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
          },
          .out_is_terminal = is_terminal,
          .err_is_terminal = is_terminal};
}

Answered tell(std::vector<std::string> words, const std::vector<Verb>& verbs = catalog(),
              const Environment& around = environment({})) {
  std::ostringstream out, err;
  Answered ran;
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
  const Answered text = tell({"config", "check", "five_mistakes.toml"});
  EXPECT_EQ(text.code, ExitCode::kUsage);
  EXPECT_EQ(text.out, "");
  EXPECT_TRUE(support::matches_golden("cli/five_mistakes.txt", text.err));

  const Answered json = tell({"config", "check", "five_mistakes.toml", "--json"});
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
  const Answered ran = tell({"config", "check", "contradictions.toml"});
  EXPECT_EQ(ran.code, ExitCode::kUsage);
  EXPECT_TRUE(support::matches_golden("cli/contradictions.txt", ran.err));
}

TEST_F(Examples, AGoodFileIsSummedUp) {
  const Answered ran = tell({"config", "check", "good.toml"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_TRUE(support::matches_golden("cli/good_check.txt", ran.out));
  const Result<Json> json = Json::parse(tell({"config", "check", "good.toml", "--json"}).out);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->find("spec")->find("layout")->find("dp")->as_int(), 8);
}

TEST_F(Examples, ShowNamesTheOriginOfEveryValue) {
  const Answered ran = tell({"config", "show", "good.toml", "--origin", "--set", "layout.pp=4"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_TRUE(support::matches_golden("cli/good_show.txt", ran.out));
}

TEST_F(Examples, AnOverrideIsCheckedLikeAFile) {
  const Answered ran = tell({"config", "check", "good.toml", "--set", "layout.tp=0"});
  EXPECT_EQ(ran.code, ExitCode::kUsage);
  EXPECT_NE(ran.err.find(" --> --set\n"), std::string::npos) << ran.err;
}

TEST_F(Examples, ABrokenOverrideIsAMistakeOfTheCheck) {
  for (const char* assignment : {"layout.tp", "layout.tp=", "=3", "layout.tp=[1"}) {
    for (const bool json : {false, true}) {
      std::vector<std::string> words = {"config", "check", "good.toml", "--set", assignment};
      if (json) words.emplace_back("--json");
      const Answered ran = tell(words);
      EXPECT_EQ(ran.code, ExitCode::kUsage) << assignment;
      EXPECT_EQ(ran.out, "") << assignment;
      EXPECT_NE(ran.err.find("LS0"), std::string::npos) << ran.err;
    }
  }
}

TEST_F(Examples, AWarningIsShownAndIsNoMistake) {
  const std::vector<std::string> words = {"config",        "check", "good.toml",     "--set",
                                          "train.steps=1", "--set", "train.warmup=2"};
  const Answered ran = tell(words);
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_TRUE(ran.err.starts_with("warning[")) << ran.err;
  EXPECT_NE(ran.out.find("is valid"), std::string::npos) << ran.out;
  std::vector<std::string> with_json = words;
  with_json.emplace_back("--json");
  const Result<Json> json = Json::parse(tell(with_json).out);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->find("warnings")->items().size(), 1u);
}

TEST_F(Examples, ShowSaysWhatIsDerivedAndWhatIsStillMissing) {
  const Answered good = tell({"config", "show", "good.toml", "--origin"});
  const std::string derived = "dp = 8                        # derived\n";
  EXPECT_NE(good.out.find(derived), std::string::npos) << good.out;
  const Answered bare = tell({"config", "show"});
  EXPECT_EQ(bare.code, ExitCode::kOk);
  for (const char* key : {"name", "seq", "global_batch"})
    EXPECT_NE(bare.out.find(join_parts("\n# ", key, " is required and not set\n")),
              std::string::npos)
        << bare.out;
  EXPECT_TRUE(Json::parse(tell({"config", "show", "--json"}).out).ok());
}

TEST(Fields, OfAnyTableAreListed) {
  const Answered inner = tell({"config", "fields", "model.moe"});
  EXPECT_EQ(inner.code, ExitCode::kOk) << inner.err;
  EXPECT_TRUE(inner.out.starts_with("model.moe.experts")) << inner.out;
  EXPECT_EQ(inner.out.find("model.mla"), std::string::npos);
  EXPECT_NE(tell({"config", "fields", "model"}).out.find("model.moe.experts"), std::string::npos);
  EXPECT_NE(tell({"config", "fields", "model.layers"})
                .out.find("(required unless `like` or a known name is given)"),
            std::string::npos);
}

TEST(Doctor, TriesTheLocalBackendAndKeepsToTheWidth) {
  const Answered ran = tell({"doctor"});
  EXPECT_NE(ran.out.find("ok      local          an all_reduce between two threads works\n"),
            std::string::npos)
      << ran.out;
  if (LOCKSTEP_WITH_TORCH) return;  // what it finds there depends on the machine
  EXPECT_EQ(ran.code, ExitCode::kEnvironment);
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
}

TEST(Bench, RunsWithTheDefaultsOfABuildWithoutTorch) {
  const Answered ran =
      tell({"bench", "comm", "--backend", "local", "--sizes", "4KiB", "--seconds", "0.001"});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_TRUE(ran.out.starts_with("local, 2 ranks")) << ran.out;
  EXPECT_EQ(ran.out.find(" 0.00 "), std::string::npos) << ran.out;
}

void check_help(const std::vector<Verb>& verbs, const std::string& path) {
  for (const Verb& verb : verbs) {
    const std::string own = path.empty() ? verb.name : path + " " + verb.name;
    std::string file = own;
    std::ranges::replace(file, ' ', '_');
    const std::string page = verb_help(verb, own, 80, false);
    // Its default depends on the build; both pages are checked below.
    if (own != "bench comm") {
      EXPECT_TRUE(support::matches_golden("cli/help/" + file + ".txt", page));
    }
    for (std::size_t at = 0; at < page.size(); at = page.find('\n', at) + 1)
      EXPECT_LE(page.find('\n', at) - at, 80u) << page.substr(at, 100);
    EXPECT_FALSE(verb.examples.empty()) << own;
    EXPECT_EQ((verb.run != nullptr) + (verb.engine != nullptr), verb.verbs.empty() ? 1 : 0) << own;
    check_help(verb.verbs, own);
  }
}

TEST(Help, OfEveryVerbIsAsReviewed) {
  EXPECT_TRUE(support::matches_golden("cli/help/lockstep.txt", main_help(catalog(), 80, false)));
  check_help(catalog(), "");
}

TEST(Help, OfBenchNamesTheBackendsOfTheBuild) {
  for (const bool with_torch : {false, true}) {
    const std::string page = verb_help(bench_verb(with_torch).verbs[0], "bench comm", 80, false);
    const std::string file = with_torch ? "bench_comm" : "bench_comm_without_torch";
    EXPECT_TRUE(support::matches_golden("cli/help/" + file + ".txt", page));
  }
  EXPECT_EQ(bench_verb().verbs[0].options[0].initial, LOCKSTEP_WITH_TORCH ? "gloo" : "local");
}

TEST(Help, IsTheSameHoweverItIsAskedFor) {
  const std::string page = tell({"help", "config", "check"}).out;
  EXPECT_EQ(tell({"config", "check", "--help"}).out, page);
  EXPECT_EQ(tell({"config", "check", "-h", "whatever"}).out, page);
  EXPECT_EQ(tell({}).out, tell({"--help"}).out);
  EXPECT_EQ(tell({}).out, tell({"help"}).out);
  EXPECT_EQ(tell({}).out, tell({"help", "help"}).out);
  EXPECT_EQ(tell({}).code, ExitCode::kOk);
  EXPECT_TRUE(Json::parse(tell({"help", "--json"}).out).ok());
}

struct Mistake {
  std::vector<std::string> words;
  ExitCode code;
  std::string message, help;
  // In the name of its test.
  friend void PrintTo(const Mistake& mistake, std::ostream* out) {
    for (const std::string& word : mistake.words) *out << word << ' ';
  }
};

class CommandLine : public testing::TestWithParam<Mistake> {};

TEST_P(CommandLine, MistakeIsExplained) {
  const Answered ran = tell(GetParam().words);
  EXPECT_EQ(ran.code, GetParam().code);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find(GetParam().message + "\n"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("help: " + GetParam().help), std::string::npos) << ran.err;

  std::vector<std::string> words = GetParam().words;
  words.insert(words.begin(), "--json");
  const Answered json = tell(words);
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
                            "did you mean `--set`, `--seq` or `--seed`?"},
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
                            "error[LS0003]: --color has no choice `blue`",
                            "the choices are `auto`, `always` and `never`"},
                    Mistake{{"explain", "--color"},
                            ExitCode::kUsage,
                            "error[LS0003]: --color needs a value",
                            "the choices are `auto`, `always` and `never`"},
                    Mistake{{"bench"},
                            ExitCode::kUsage,
                            "error[LS0001]: `lockstep bench` needs a command",
                            "there is `comm`"},
                    Mistake{{"bench", "comm", "--sizes", "4KiB,"},
                            ExitCode::kUsage,
                            "error[LS0003]: --sizes `4KiB,` lacks a size",
                            "write sizes separated by commas, such as 4KiB,64MiB"},
                    Mistake{{"bench", "comm", "--sizes="},
                            ExitCode::kUsage,
                            "error[LS0003]: --sizes `` lacks a size",
                            "write sizes separated by commas, such as 4KiB,64MiB"},
                    Mistake{{"bench", "comm", "--sizes", "0"},
                            ExitCode::kUsage,
                            "error[LS0003]: --sizes must be above 0, not 0",
                            "write sizes separated by commas, such as 4KiB,64MiB"},
                    Mistake{{"bench", "comm", "--ranks", "99999999999999999999"},
                            ExitCode::kUsage,
                            "error[LS0003]: --ranks must be at least 2 and at most 64, not "
                            "99999999999999999999",
                            "the default is 2"},
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

// What is wrong was written on the command line, so that is the place, and its nearest values are
// the help.
TEST(Overrides, AreTheirOwnPlace) {
  const std::string tiny = support::source_dir() + "/examples/tiny.toml";
  struct Case {
    std::string set, help;
  };
  for (const auto& [set, help] :
       {Case{"layout.dp=1000", "the nearest dp: 8\n"},
        Case{"layout.dp=3", "the nearest dp: 2 or 4\n"},
        Case{"batch.microbatch=5", "the nearest microbatch: 4 or 8\n"},
        Case{"batch.global_batch=33", "the nearest global_batch: 32 or 36\n"},
        Case{"layout.tp=7", "the nearest tp that does: 4"},
        Case{"layout.pp=9", "a stage needs at least one layer: pp = 4 or less"}}) {
    const Answered ran = tell({"config", "check", tiny, "--set", set});
    EXPECT_NE(ran.err.find("help: " + help), std::string::npos) << set << "\n" << ran.err;
    EXPECT_TRUE(ran.err.ends_with(" in --set\n")) << ran.err;
    const Json json = *Json::parse(tell({"config", "check", tiny, "--set", set, "--json"}).err);
    EXPECT_EQ(json.find("subject")->as_text(), "--set");
  }
  // tp is wrong for the heads and for the sequence: both say what tp may be.
  const Answered both =
      tell({"config", "check", tiny, "--set", "layout.tp=7", "--set", "model.heads=6"});
  EXPECT_NE(both.err.find("the nearest tp: 4 or 8"), std::string::npos) << both.err;
  // One mistake here, one there.
  const Answered mixed =
      tell({"config", "check", support::source_dir() + "/tests/golden/cli/contradictions.toml",
            "--set", "train.dtype=\"f31\""});
  EXPECT_TRUE(mixed.err.ends_with("contradictions.toml and --set\n")) << mixed.err;
}

// Nothing that a command line says is left aside in silence.
TEST(Options, ThatWouldBeIgnoredAreRefused) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"model", "--list", "--fields"},
        {"model", "--list", "--seq", "8"},
        {"model", "--fields", "--seq", "8"},
        {"cluster", "--list", "--fields"}}) {
    const Answered ran = tell(words);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << words[0] << words[1] << words[2] << ran.out;
    EXPECT_NE(ran.err.find(words[2]), std::string::npos) << ran.err;
  }
}

// "1 microbatch", not "1 microbatches".
TEST(Words, OneOfAThingIsSingular) {
  const std::string tiny = support::source_dir() + "/examples/tiny.toml";
  const std::vector<std::string> alone = {"--set", "batch.global_batch=1", "--set",
                                          "batch.microbatch=1"};
  std::vector<std::vector<std::string>> all = {
      {"simulate", "--pp", "1", "--microbatches", "1"},
      {"simulate", "--pp", "1", "--microbatches", "1", "--zero", "1"},
      {"simulate", "--pp", "1", "--microbatches", "1", "--compare", "all"},
      {"simulate", "--pp", "2", "--microbatches", "1", "--memory-cap", "1"},
      {"simulate", tiny},
      {"config", "check", tiny},
      {"config", "check", tiny, "--set", "layout.pp=9", "--set", "model.layers=1"},
      {"config", "check", tiny, "--set", "layout.dp=2"},
      {"plan", tiny, "--cluster", "h100:1", "--memory", "--explain"},
      {"plan", "--model", "llama3-8b", "--cluster", "h200:1", "--seq", "8192", "--global-batch",
       "1"},
      {"plan", "--model", "llama3-8b", "--cluster", "h200:8", "--seq", "8192", "--global-batch",
       "8", "--layout", "tp=1,pp=1,dp=8,recompute=full"},
      {"cluster", "h100:1"}};
  const std::regex wrong(
      "(^|[^0-9.,x=-])1 (microbatches|pipeline ranks|devices|ranks|sequences|layers|"
      "stages|units|layouts|tokens|days|files|blocks|computations|pieces)\\b");
  for (std::vector<std::string>& words : all) {
    if (std::ranges::find(words, tiny) != words.end())
      words.insert(words.end(), alone.begin(), alone.end());
    const Answered ran = tell(words);
    std::smatch found;
    const std::string text = ran.out + ran.err;
    EXPECT_FALSE(std::regex_search(text, found, wrong)) << found.str() << "\n" << text;
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
    const Environment around = environment(c.variables, c.terminal);
    EXPECT_EQ(use_colour(c.choice, around.lookup, c.terminal), c.colour) << c.choice;
    const Answered ran = tell({"--color", c.choice, "nothing"}, catalog(), around);
    EXPECT_EQ(ran.err.find('\x1b') != std::string::npos, c.colour) << ran.err;
  }
}

Verb probe(Result<ExitCode> (*body)(const Args&, Output&)) {
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

Result<ExitCode> print_args(const Args& args, Output& output) {
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
  EXPECT_EQ(tell({"probe"}, verbs).out, "3");
  EXPECT_EQ(tell({"probe", "--count=5", "--loud"}, verbs).out, "5 loud");
  EXPECT_EQ(tell({"probe", "a", "--count", "5", "b", "c"}, verbs).out, "5 first a rest b rest c");
  EXPECT_EQ(tell({"probe", "--rate", "-2.5", "--size", "2KiB", "--mode=slow"}, verbs).out,
            "3 rate -2.5 size 2048 mode slow");
  EXPECT_EQ(tell({"probe", "--many", "x", "--many=--y"}, verbs).out, "3 many x many --y");
  EXPECT_EQ(tell({"probe", "--", "--loud", "-x"}, verbs).out, "3 first --loud rest -x");
  EXPECT_EQ(tell({"probe", "--", "--json"}, verbs).out, "3 first --json");
  EXPECT_EQ(tell({"probe", "-5"}, verbs).out, "3 first -5");
}

TEST(Args, ComeFromTheEnvironmentWhenNotGiven) {
  const std::vector<Verb> verbs = {probe(print_args)};
  const Environment around = environment({{"PROBE_COUNT", "7"}});
  EXPECT_EQ(tell({"probe"}, verbs, around).out, "7");
  EXPECT_EQ(tell({"probe", "--count", "2"}, verbs, around).out, "2");
  EXPECT_EQ(tell({"probe"}, verbs, environment({{"PROBE_COUNT", "x"}})).code, ExitCode::kUsage);
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
    const Answered ran = tell(words, verbs);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << words.back();
    EXPECT_TRUE(ran.err.starts_with("error[LS0003]: --")) << ran.err;
    EXPECT_EQ(ran.out, "");
  }
}

TEST(ExitCodes, FollowTheKindOfFailure) {
  const auto code_of = [](Result<ExitCode> (*body)(const Args&, Output&)) {
    return tell({"probe"}, {probe(body)});
  };
  EXPECT_EQ(
      code_of([](const Args&, Output&) -> Result<ExitCode> { return ExitCode::kCheckFailed; }).code,
      ExitCode::kCheckFailed);
  const Answered refused = code_of([](const Args&, Output&) -> Result<ExitCode> {
    return Error{Code::kFileUnreadable, "no file", "look"};
  });
  EXPECT_EQ(refused.code, ExitCode::kEnvironment);
  EXPECT_TRUE(refused.err.starts_with(join_parts("error[", to_text(Code::kFileUnreadable), "]")));
  const Answered bug = code_of([](const Args&, Output&) -> Result<ExitCode> {
    LS_CHECK(false, "planted");
    return ExitCode::kOk;
  });
  EXPECT_EQ(bug.code, ExitCode::kBug);
  EXPECT_NE(bug.err.find("planted"), std::string::npos);
  EXPECT_NE(bug.err.find("bug in Lockstep"), std::string::npos);
  EXPECT_EQ(code_of([](const Args&, Output&) -> Result<ExitCode> {
              throw WorldError({Code::kPeerLost, "rank 3 is gone", ""});
            }).code,
            ExitCode::kRunFailed);
  EXPECT_EQ(code_of([](const Args&, Output&) -> Result<ExitCode> {
              throw IoError({Code::kFileUnreadable, "no file", ""});
            }).code,
            ExitCode::kEnvironment);
  EXPECT_EQ(code_of([](const Args&, Output&) -> Result<ExitCode> { throw 3; }).code,
            ExitCode::kBug);
}

TEST(ExitCodes, EveryCodeHasOne) {
  for (const CodeRow& row : code_table()) EXPECT_NE(exit_code_of(row.code), ExitCode::kOk);
  EXPECT_EQ(exit_code_of(Code::kNeedsTorch), ExitCode::kEnvironment);
  EXPECT_EQ(exit_code_of(Code::kSyntax), ExitCode::kUsage);
}

TEST(Torch, AVerbThatNeedsItSaysSoInACoreBuild) {
  if (LOCKSTEP_WITH_TORCH) return;
  for (const char* name : {"train", "verify"}) {
    const Answered refused = tell({name});
    EXPECT_EQ(refused.code, ExitCode::kEnvironment);
    EXPECT_TRUE(refused.err.starts_with(join_parts(
        "error[LS0601]: `lockstep ", name, "` needs LibTorch, which this build does not have\n")))
        << refused.err;
  }
}

}  // namespace
}  // namespace lockstep::cli
