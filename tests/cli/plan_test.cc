#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/config/document.h"
#include "lockstep/cost/analytic/price.h"
#include "lockstep/planner/step_quantiles.h"
#include "lockstep/spec/spec.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> words = {"plan",  "--model", "llama3-8b",      "--cluster", "h100:64",
                                    "--seq", "8192",    "--global-batch", "512"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Answer run_plan(std::vector<std::string> more = {}, int width = 0) {
  return answer(plan_verb(), with(std::move(more)), width);
}

// Text as one line, wherever it was broken.
std::string flat(const std::string& text) {
  return std::regex_replace(text, std::regex("\n +|\n"), " ");
}

Json json_of(std::vector<std::string> more) {
  more.emplace_back("--json");
  const Answer ran = run_plan(std::move(more));
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  auto json = Json::parse(ran.out);
  EXPECT_TRUE(json.ok()) << ran.out;
  return *json;
}

TEST(PlanVerb, StaysInsideTheWindow) {
  for (const int width : {80, 120})
    for (const auto& more : std::vector<std::vector<std::string>>{
             {}, {"--explain", "--memory", "--tokens", "15e12", "--price", "2"}}) {
      const Answer ran = run_plan(more, width);
      EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
      std::istringstream lines(ran.out);
      for (std::string line; std::getline(lines, line);)
        EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    }
}

TEST(PlanVerb, JsonRowsAreDistinctAndFit) {
  const Json json = json_of(
      {"--top", "5", "--tokens", "1e12", "--price", "2", "--explain", "--what-if", "network=2x"});
  EXPECT_EQ(json.find("schema")->as_text(), "lockstep.plan/2");
  EXPECT_GT(json.find("layouts")->as_int(), 1000);
  const auto& rows = json.find("plans")->items();
  ASSERT_EQ(rows.size(), 5U);
  double before = 0;
  for (const Json& row : rows) {
    EXPECT_TRUE(row.find("fits")->as_bool());
    EXPECT_GE(row.find("step_s")->find("total")->as_real() * 1.0051, before);
    before = row.find("step_s")->find("total")->as_real();
    double sum = 0;
    for (const cost::StepTerm& term : cost::kStepTerms)
      sum += row.find("step_s")->find(term.name)->as_real();
    EXPECT_NEAR(sum / before, 1, 1e-9);
    const Json& memory = *row.find("memory");  // with headroom
    EXPECT_LE(memory.find("device_bytes")->as_real(),
              0.97 * memory.find("device_has_bytes")->as_real());
    EXPECT_GT(row.find("run")->find("days")->as_real(), 0);
    const Json& mfu = *row.find("mfu");
    EXPECT_LT(mfu.find("causal")->as_real(), mfu.find("full")->as_real());
  }
  EXPECT_FALSE(json.find("neighbours")->items().empty());
  EXPECT_EQ(json.find("what_if")->items().size(), 1U);
}

// A layout that was found costs the same when it is asked for by name.
TEST(PlanVerb, PricesTheUsersOwnLayout) {
  const Json first = json_of({"--top", "1"});
  const Json& best = first.find("plans")->items()[0];
  const Json again = json_of({"--layout", best.find("name")->as_text()});
  EXPECT_EQ(again.find("plans")->items()[0].find("step_s")->find("total")->as_real(),
            best.find("step_s")->find("total")->as_real());
  const Json mine = json_of({"--layout", "tp=8,pp=2,zero=1,schedule=interleaved,vpp=2"});
  EXPECT_EQ(mine.find("plans")->items()[0].find("layout")->find("dp")->as_int(), 4);
  const std::string ordered = "tp2 pp2 dp16 zero1 interleaved vpp2 m32 order=tp,cp,dp,pp";
  EXPECT_EQ(json_of({"--layout", ordered}).find("plans")->items()[0].find("name")->as_text(),
            ordered);
}

// What a layout does not say is sought, and said.
TEST(PlanVerb, FillsTheGapsOfALayout) {
  for (const char* schedule : {"interleaved", "dualpipe-v", "zbv"}) {
    const std::vector<std::string> asked = {"--layout",
                                            join_parts("tp=2,pp=4,schedule=", schedule)};
    const Json row = json_of(asked).find("plans")->items()[0];
    EXPECT_EQ(row.find("layout")->find("schedule")->as_text(), schedule);
    EXPECT_GT(row.find("layout")->find("vpp")->as_int(), 1);
    EXPECT_TRUE(row.find("fits")->as_bool());
    EXPECT_NE(run_plan(asked).out.find("not said, so the best was sought: vpp"), std::string::npos);
  }
  const Answer full =
      run_plan({"--layout", "pp=2,zero=1,schedule=1f1b,recompute=none,microbatch=8"});
  EXPECT_EQ(full.code, ExitCode::kCheckFailed);
  EXPECT_NE(full.out.find("with recompute="), std::string::npos) << full.out;
  // What is said stays, and what is sought leaves headroom.
  for (const auto& [layout, words] : {std::pair{"tp=2,pp=4", " 1f1b "},
                                      std::pair{"tp=2,pp=4,recompute=full:2x2+1+0", "full:2x2+1+0"},
                                      std::pair{"tp=2,pp=4,m=16", " m16 "}}) {
    const Json row = json_of({"--layout", layout, "--schedules", "1f1b"}).find("plans")->items()[0];
    EXPECT_NE(row.find("name")->as_text().find(words), std::string::npos) << row.dump(2);
    const Json& memory = *row.find("memory");
    EXPECT_LE(memory.find("device_bytes")->as_real(),
              0.97 * memory.find("device_has_bytes")->as_real());
  }
  const Answer other = run_plan({"--layout", "tp=8,recompute=cheap"});
  EXPECT_NE(other.err.find("it is called `selective`"), std::string::npos) << other.err;
}

// A sequence too long for one device: the way its ranks meet is in the table, in JSON, in the run
// file and in the layout's name, which is priced the same.
TEST(PlanVerb, SaysHowRanksOfASequenceMeet) {
  const std::string name = ::testing::TempDir() + "plan_verb_context.json";
  const std::vector<std::string> asked = {
      "plan",  "--model", "llama3-8b", "--cluster", "h100:64",        "--seq", "524288",
      "--out", name,      "--top",     "3",         "--global-batch", "8",     "--json"};
  const Answer ran = answer(plan_verb(), asked);
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  const Json json = *Json::parse(ran.out);
  const Json& best = json.find("plans")->items()[0];
  const std::string way = best.find("layout")->find("cp_comm_type")->as_text();
  EXPECT_GT(best.find("layout")->find("cp")->as_int(), 1);
  EXPECT_TRUE(best.find("runs_here")->as_bool());
  EXPECT_NE(best.find("name")->as_text().find(" cp_comm_type=" + way), std::string::npos);
  config::Report report;
  const auto spec = spec::read_spec(*config::load_document(name, report), report);
  ASSERT_TRUE(spec) << report.text(name, false);
  EXPECT_EQ(to_text(spec->layout.context), way);
  const auto named = [&](const std::string& layout) {
    return answer(plan_verb(), {"plan", "--model", "llama3-8b", "--cluster", "h100:64", "--seq",
                                "524288", "--global-batch", "8", "--layout", layout});
  };
  const Answer again = named(best.find("name")->as_text());
  EXPECT_NE(again.out.find("cp_comm_type"), std::string::npos) << again.out;
  EXPECT_NE(again.out.find("ranks the busiest has 1.000 x the mean in attention"),
            std::string::npos)
      << again.out;
  EXPECT_NE(again.out.find(" " + way + " "), std::string::npos) << again.out;
  std::istringstream lines(
      answer(plan_verb(),
             {"plan", "--model", "llama3-405b", "--cluster", "h100:16384", "--seq", "131072",
              "--global-batch", "128", "--explain", "--what-if", "network=0.5x"},
             80)
          .out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_NE(named("tp=8,cp=8,cp_comm_type=ulysses").err.find("does not divide the 32 heads"),
            std::string::npos);
  EXPECT_NE(named("tp=8,cp=8,cp_comm_type=a2a").err.find("`ulysses`"), std::string::npos);
  std::remove(name.c_str());
}

TEST(PlanVerb, SaysWhatUnevenExpertsTake) {
  const auto asked = [](const char* layout, bool json) {
    std::vector<std::string> words = {"plan",    "--model",  "mixtral-8x7b", "--cluster",
                                      "h100:64", "--seq",    "4096",         "--global-batch",
                                      "256",     "--layout", layout};
    if (json) words.emplace_back("--json");
    return answer(plan_verb(), words);
  };
  const char* shared = "pp2 dp32 ep8 zero1 1f1b";
  const Json json = *Json::parse(asked(shared, true).out);
  const Json& row = json.find("plans")->items()[0];
  const double even = row.find("memory")->find("device_bytes")->as_real();
  const double twice = row.find("if_met")->find("twice_bytes")->as_real();
  const double all = row.find("if_met")->find("all_bytes")->as_real();
  EXPECT_GT(twice, even);
  // What grows is in proportion to the rows.
  EXPECT_NEAR(all - even, 7 * (twice - even), 1e-9 * all);
  const std::string text = flat(asked(shared, false).out);
  EXPECT_NE(text.find("if those of a device meet twice their share of tokens"), std::string::npos)
      << text;
  const Json alone = *Json::parse(asked("pp2 dp32 zero3 1f1b", true).out);
  EXPECT_EQ(alone.find("plans")->items()[0].find("if_met"), nullptr);
}

TEST(PlanVerb, WritesARunFile) {
  const std::string name = ::testing::TempDir() + "plan_verb_out.json";
  const Answer ran = run_plan({"-o", name});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  config::Report report;
  const auto document = config::load_document(name, report);
  ASSERT_TRUE(document.has_value());
  const auto spec = spec::read_spec(*document, report);
  ASSERT_TRUE(spec.has_value()) << report.text(name, false);
  EXPECT_EQ(spec->world(), 64);
  // And plans from it, comparing the layout with itself.
  const Answer next = answer(plan_verb(), {"plan", name});
  EXPECT_EQ(next.code, ExitCode::kOk) << next.err;
  EXPECT_NE(next.out.find("\nyours "), std::string::npos) << next.out;
  std::remove(name.c_str());
}

// Files that a run file names lie beside it, wherever its copy is written.
TEST(PlanVerb, WritesARunFileElsewhere) {
  const std::filesystem::path dir = ::testing::TempDir() + "plan_verb_elsewhere";
  std::filesystem::create_directories(dir / "out");
  std::ofstream(dir / "own.toml") << "like = \"llama3-8b\"\nlayers = 16\n";
  std::ofstream(dir / "two.toml") << "devices = 16\n[device]\nbase = \"h100\"\n";
  std::ofstream(dir / "run.toml")
      << "[model]\nname = \"own.toml\"\n[cluster]\nname = \"two.toml\"\n"
         "[batch]\nseq = 8192\nglobal_batch = 64\n[train]\nsteps = 1\n";
  const std::string out = (dir / "out" / "plan.json").string();
  const Answer ran = answer(plan_verb(), {"plan", (dir / "run.toml").string(), "--out", out});
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  config::Report report;
  const auto spec = spec::read_spec(*config::load_document(out, report), report);
  ASSERT_TRUE(spec) << report.text(out, false);
  EXPECT_EQ(spec->model.layers, 16);
  EXPECT_EQ(spec->world(), 16);
  std::filesystem::remove_all(dir);
}

// A layout of a run file that has no closed form is no reason to fail.
TEST(PlanVerb, ComparesOnlyWhatHasAPrice) {
  const std::string name = ::testing::TempDir() + "plan_verb_own.toml";
  std::ofstream(name)
      << "[model]\nname = \"llama3-8b\"\n[cluster]\nname = \"h100:16\"\n[layout]\npp = 2\n"
         "schedule = \"looped-bfs\"\nvpp = 2\n[batch]\nseq = 8192\nglobal_batch = 64\n"
         "[train]\nsteps = 1\n";
  const Answer ran = answer(plan_verb(), {"plan", name});
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_NE(ran.out.find("your own layout is not compared"), std::string::npos) << ran.out;
  const Answer smaller = answer(plan_verb(), {"plan", name, "--set", "layout.schedule=1f1b",
                                              "--set", "layout.vpp=1", "--cluster", "h100:8"});
  EXPECT_NE(smaller.out.find("it is for 16 devices, not for 8"), std::string::npos) << smaller.out;
  std::remove(name.c_str());
}

// Every pipeline rank has a bar, the fullest what the table says of it.
TEST(PlanVerb, DrawsEveryStage) {
  const std::string name = ::testing::TempDir() + "plan_verb_memory.svg";
  const std::vector<std::string> asked = {"--layout", "tp=4,pp=4,zero=1", "--memory"};
  std::vector<std::string> drawn = asked;
  drawn.insert(drawn.end(), {"--svg", name});
  const Answer ran = run_plan(drawn);
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  for (const char* says : {"\n0 w", "\n3 w", "| a device has 80.0 GiB", "a activations"})
    EXPECT_NE(ran.out.find(says), std::string::npos) << says << "\n" << ran.out;
  std::ifstream file(name);
  const std::string svg((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 100);
  EXPECT_NE(svg.find("a device has 80.0 GiB"), std::string::npos);
  std::remove(name.c_str());
  const Json json = json_of(asked);
  const Json& row = json.find("plans")->items()[0];
  double most = 0;
  ASSERT_EQ(row.find("stages")->items().size(), 4U);
  for (const Json& stage : row.find("stages")->items())
    most = std::max(most, stage.find("device_bytes")->as_real());
  EXPECT_EQ(most, row.find("memory")->find("device_bytes")->as_real());
}

TEST(PlanVerb, TellsWhatATokenBudgetCosts) {
  const Answer ran = run_plan({"--tokens", "1e12", "--price", "2"}, 120);
  const std::string head = ran.out.substr(0, ran.out.find("\n1 "));
  EXPECT_NE(head.find("  days  "), std::string::npos) << ran.out;
  EXPECT_NE(head.find("cost"), std::string::npos) << ran.out;
}

TEST(PlanVerb, EmitsEachFramework) {
  for (const auto& [name, line] :
       {std::pair{"megatron", " pretrain_gpt.py \\\n  --num-layers "},
        {"torchtitan", "-m torchtitan.train --module plan_config --config plan \\\n"},
        {"deepspeed", "deepspeed --hostfile "}}) {
    const Answer ran = run_plan({"--emit", name});
    EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
    EXPECT_TRUE(ran.out.starts_with("#!/bin/bash\n")) << ran.out;
    EXPECT_NE(ran.out.find(line), std::string::npos) << ran.out;
  }
}

// A script is of the plan for its framework, and the answer says whom it is for.
TEST(PlanVerb, EmitIsOfThePlanForIt) {
  const Json json = json_of({"--for", "megatron", "--top", "1"});
  EXPECT_EQ(json.find("for")->find("framework")->as_text(), "megatron");
  const Json& best = json.find("plans")->items()[0];
  const Json script = json_of({"--emit", "megatron"});
  EXPECT_EQ(script.find("layout")->as_text(), best.find("name")->as_text());
  EXPECT_EQ(script.find("step_s")->as_real(), best.find("step_s")->find("total")->as_real());
  EXPECT_NE(flat(run_plan({"--for", "megatron"}).out).find("for Megatron-LM (core "),
            std::string::npos);
}

// Eight-bit products are in the flags, and what MFU is a share of is said.
TEST(PlanVerb, SaysFp8) {
  const Answer full = run_plan({"--layout", "zero=0,microbatch=8", "--emit", "megatron"});
  EXPECT_EQ(full.code, ExitCode::kCheckFailed);
  EXPECT_NE(full.err.find("note: it does not fit: "), std::string::npos) << full.err;
  const Answer flags = run_plan({"--dtype", "fp8", "--emit", "megatron"});
  EXPECT_NE(flags.out.find("  --bf16 \\\n  --fp8-format hybrid \\\n"), std::string::npos)
      << flags.out;
  EXPECT_EQ(run_plan({"--emit", "megatron"}).out.find("fp8"), std::string::npos);
  EXPECT_NE(run_plan({"--dtype", "fp8", "--emit", "torchtitan"}).out.find("Float8LinearConverter"),
            std::string::npos);
  const Answer said = run_plan({"--dtype", "fp8"});
  EXPECT_NE(said.out.find("fp8 products"), std::string::npos) << said.out;
  EXPECT_NE(flat(said.out).find("of the bf16 peak"), std::string::npos) << said.out;
  const Json json = json_of({"--dtype", "fp8", "--top", "1"});
  EXPECT_EQ(json.find("dtype")->as_text(), "fp8");
  EXPECT_EQ(json.find("plans")->items()[0].find("mfu")->find("peak")->as_text(), "bf16");
}

// Rotary positions go on beyond those that were trained; that is no mistake, but nobody should miss
// it.
TEST(PlanVerb, SaysWhenPositionsAreBeyondTheModels) {
  const std::vector<std::string> words = {"plan",      "--model",        "llama3-8b",
                                          "--cluster", "h100:64",        "--seq",
                                          "32768",     "--global-batch", "64"};
  const Answer ran = answer(plan_verb(), words);
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  EXPECT_NE(flat(ran.out).find("seq = 32768 is longer than the 8192 positions of llama3-8b"),
            std::string::npos)
      << ran.out;
}

// What to expect is what sources that nobody looked at got, not only those that were.
TEST(PlanVerb, TheRangeIsThatOfNewSources) {
  const Answer ran = run_plan({"--top", "1"});
  for (const char* says : {"for half of runs, ", "for nine of ten, as runs of", "P95 "})
    EXPECT_NE(flat(ran.out).find(says), std::string::npos) << ran.out;
  const Json json = json_of({"--top", "1"});
  const Json& step = *json.find("plans")->items()[0].find("step_s");
  const double factor = step.find("factor_nine_of_ten")->as_real();
  EXPECT_NEAR(std::log(factor), 0.524, 1e-9);
  EXPECT_GT(factor * step.find("total")->as_real(), step.find("p95")->as_real());
}

// A run file that computes in another type is not what is priced.
TEST(PlanVerb, SaysWhichTypeIsPriced) {
  const std::string name = ::testing::TempDir() + "plan_verb_f32.toml";
  std::ofstream(name) << "[model]\nname = \"llama3-8b\"\n[cluster]\nname = \"h100:16\"\n"
                         "[batch]\nseq = 8192\nglobal_batch = 64\n[train]\nsteps = 1\n"
                         "dtype = \"f32\"\n";
  const Answer ran = answer(plan_verb(), {"plan", name});
  EXPECT_NE(flat(ran.out).find("trains in f32, but bf16 is priced"), std::string::npos) << ran.out;
  std::remove(name.c_str());
}

std::string titles_of(const Answer& ran) {
  const std::size_t begin = ran.out.find("\n\n") + 2;
  return ran.out.substr(begin, ran.out.find('\n', begin) - begin) + " ";
}

// A pipe has no width, so nothing is left out; on a terminal memory stays whatever goes, and what
// went is named.
TEST(PlanVerb, TheTableIsWholeInAPipe) {
  const std::vector<std::string> hard = {"plan",      "--model",        "mixtral-8x7b",
                                         "--cluster", "h100:64",        "--seq",
                                         "8192",      "--global-batch", "256"};
  const std::string whole = titles_of(answer(plan_verb(), hard));
  for (const char* title :
       {" tp ", " pp ", " dp ", " ep ", " zero ", " schedule ", " mbs x m ", " recompute ",
        " step ", " MFU ", " full ", " GiB ", " bubble ", " comm ", " tokens/s ", " runs "})
    EXPECT_NE(whole.find(title), std::string::npos) << title << whole;
  for (const int width : {60, 80}) {
    const Answer narrow = answer(plan_verb(), hard, width);
    EXPECT_NE(titles_of(narrow).find(" GiB "), std::string::npos) << width << titles_of(narrow);
    EXPECT_NE(flat(narrow.out).find("left out for want of width: "), std::string::npos)
        << narrow.out;
  }
  EXPECT_NE(titles_of(answer(plan_verb(), hard, 200)).find(" runs "), std::string::npos);
}

// Percent of the step, hops among them; Megatron's (p-1)/m is of the step without its bubble.
TEST(PlanVerb, SaysWhatABubbleIsAShareOf) {
  const Answer ran = run_plan();
  EXPECT_NE(flat(ran.out).find("bubble (of the step; Megatron's (p-1)/m is of its work)"),
            std::string::npos)
      << ran.out;
  const std::string titles = titles_of(ran);
  std::size_t row = ran.out.find(titles.substr(0, titles.size() - 1));
  int pipelines = 0;
  const Json json = json_of({});
  for (const Json& plan : json.find("plans")->items()) {
    row = ran.out.find('\n', row) + 1;
    const Json& step = *plan.find("step_s");
    const double idle = step.find("bubble")->as_real() + step.find("pipe")->as_real();
    EXPECT_EQ(ran.out.substr(row + titles.find(" bubble ") + 1, 6),
              strf("%6.1f", 100 * idle / step.find("total")->as_real()))
        << ran.out;
    pipelines += plan.find("layout")->find("pp")->as_int() > 1 ? 1 : 0;
  }
  EXPECT_GT(pipelines, 0);
}

// As far as predictions can tell: within the error that published runs had.
TEST(PlanVerb, JsonSaysWhichRowsAreTiedWithTheFirst) {
  const Json json = json_of({"--top", "64"});
  const double error = planner::published_errors(true).median / 100;
  int tied = 0, slower = 0;
  const auto seconds = [](const Json& row) { return row.find("step_s")->find("total")->as_real(); };
  const std::vector<Json>& rows = json.find("plans")->items();
  for (const Json& row : rows) {
    const bool is_tied = std::abs(std::log(seconds(row) / seconds(rows[0]))) <= error;
    EXPECT_EQ(row.find("tied")->as_bool(), is_tied) << row.find("name")->as_text();
    ++(is_tied ? tied : slower);
  }
  EXPECT_GT(tied, 1);
  EXPECT_GT(slower, 0);
}

TEST(PlanVerb, SeeksWhatRunsWhenAsked) {
  const Json json = json_of({"--runnable"});
  for (const Json& row : json.find("plans")->items())
    EXPECT_TRUE(row.find("runs_here")->as_bool()) << row.find("name")->as_text();
}

TEST(PlanVerb, CountsMoneyAndFailures) {
  const Json fast = json_of({"--objective", "time", "--top", "1"});
  const Json cheap = json_of({"--objective", "cost", "--top", "1"});
  const auto per_token = [](const Json& json) {
    const Json& row = json.find("plans")->items()[0];
    return row.find("devices")->as_real() /
           (row.find("tokens_per_s")->as_real() * row.find("goodput")->find("share")->as_real());
  };
  EXPECT_LE(per_token(cheap), per_token(fast));
}

struct Wrong {
  std::vector<std::string> words;
  ExitCode code;
  std::string code_text, says;
  // In the name of its test.
  friend void PrintTo(const Wrong& wrong, std::ostream* out) {
    for (const std::string& word : wrong.words) *out << word << ' ';
  }
};
class PlanMistakes : public ::testing::TestWithParam<Wrong> {};

TEST_P(PlanMistakes, AreToldWithHelp) {
  const Answer ran = answer(plan_verb(), GetParam().words);
  EXPECT_EQ(ran.code, GetParam().code) << ran.out;
  EXPECT_NE(ran.err.find(GetParam().code_text), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(GetParam().says), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("help: "), std::string::npos) << ran.err;
}

std::vector<std::string> ask(const char* model, const char* cluster, const char* batch,
                             std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"plan", "--model",        model, "--cluster", cluster, "--seq",
                                    "8192", "--global-batch", batch};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

INSTANTIATE_TEST_SUITE_P(
    PlanVerb, PlanMistakes,
    ::testing::Values(
        Wrong{ask("llama3-80b", "h100:64", "512"), ExitCode::kUsage, "LS0301", "llama3-8b"},
        Wrong{ask("llama3-405b", "h100:7", "512"), ExitCode::kCheckFailed, "LS0214", "80.0 GiB"},
        Wrong{ask("llama3-405b", "h100:16384", "1"), ExitCode::kCheckFailed, "LS0215",
              "nearest global_batch: "},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--layout", "tp=3"}), ExitCode::kUsage, "LS0201",
              "the nearest tp: 2 or 4"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--layout", "tp=8,pp=3"}), ExitCode::kUsage,
              "LS0201", "pp"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--what-if", "netwrk=2x"}), ExitCode::kUsage,
              "LS0003", "network"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--svg", "out.svg"}), ExitCode::kUsage, "LS0106",
              "no --memory"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--price", "2"}), ExitCode::kUsage, "LS0106",
              "--tokens"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--emit", "megatron", "--memory"}),
              ExitCode::kUsage, "LS0106", "--memory"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--emit", "megatron", "--explain"}),
              ExitCode::kUsage, "LS0106", "--explain"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--emit", "megatron", "--what-if", "network=2x"}),
              ExitCode::kUsage, "LS0106", "--what-if"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--emit", "megatron", "--tokens", "1e12"}),
              ExitCode::kUsage, "LS0106", "--tokens"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--emit", "megatron", "--critical-batch", "1e6"}),
              ExitCode::kUsage, "LS0106", "--critical-batch"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--set", "layout.tp=2"}), ExitCode::kUsage,
              "LS0106", "--set"},
        Wrong{
            ask("llama3-8b", "h100:64", "512", {"--layout", "tp=8,zero=1", "--objective", "cost"}),
            ExitCode::kUsage, "LS0106", "--objective"},
        Wrong{ask("llama3-8b", "a100:64", "512", {"--dtype", "fp8"}), ExitCode::kUsage, "LS0106",
              "`h100`"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--for", "megatron", "--emit", "torchtitan"}),
              ExitCode::kUsage, "LS0106", "leave --for out"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--for", "megatron", "--schedules", "zb-h1"}),
              ExitCode::kUsage, "LS0106", "`interleaved`"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--for", "deepspeed", "--layout", "tp=2,cp=2"}),
              ExitCode::kUsage, "LS0106", "DeepSpeed 0.19.8 does not run tp 2 with cp 2"},
        Wrong{ask("gemma2-2b", "h100:64", "512", {"--emit", "megatron"}), ExitCode::kUsage,
              "LS0106", "norms after"},
        Wrong{ask("llama3-8b", "h100:64", "512", {"--dtype", "fp8", "--emit", "deepspeed"}),
              ExitCode::kUsage, "LS0106", "megatron"},
        Wrong{ask("gpt2", "h100:8", "64"), ExitCode::kUsage, "LS0106", "1024 positions"},
        Wrong{ask("llama3-8b", "h100:512", "512", {"--layout", "tp=7"}), ExitCode::kUsage, "LS0201",
              "the nearest tp: 4 or 8"},
        Wrong{{"plan", "run.toml", "--model", "llama3-8b"}, ExitCode::kUsage, "LS0003", "both"},
        Wrong{{"plan", "--model", "llama3-8b"}, ExitCode::kUsage, "LS0003", "--cluster"}));

}  // namespace
}  // namespace lockstep::cli
