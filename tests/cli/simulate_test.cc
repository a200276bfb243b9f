#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/pipeline/catalog.h"
#include "lockstep/pipeline/csv.h"
#include "tests/cli/answer.h"
#include "tests/support/golden.h"

namespace lockstep::cli {
namespace {

// Words separated by blanks, after `simulate`.
Answer run_simulate(const std::string& line, int width = 80) {
  std::vector<std::string> words = {"simulate"};
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  return answer(simulate_verb(), words, width);
}

Json json(const std::string& line) {
  const Answer ran = run_simulate(line + " --json");
  EXPECT_EQ(ran.code, ExitCode::kOk) << line << "\n" << ran.err;
  Result<Json> parsed = Json::parse(ran.out);
  EXPECT_TRUE(parsed.ok()) << ran.out;
  return parsed.ok() ? *std::move(parsed) : Json();
}

// The field of each schedule, in order.
std::vector<double> reals(const Json& answer, const std::string& field) {
  std::vector<double> values;
  for (const Json& schedule : answer.find("schedules")->items())
    values.push_back(schedule.find(field)->as_real());
  return values;
}

class InSource : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(support::source_dir());
    dir_ = std::filesystem::path(testing::TempDir()) /
           testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(dir_);
  }
  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  static std::string text_of(const std::string& name) {
    std::ifstream stream(name, std::ios::binary);
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  std::filesystem::path before_, dir_;
};
using SimulateRun = InSource;
using SimulateFiles = InSource;

// Bubbles of p = 8, m = 32, tF = tB = tW = 1 at three lengths of a hop, exact to the last bit: from
// an independent model in rational arithmetic.
TEST(Simulate, ReproducesTheTableOfBubbles) {
  const std::string shape = "--pp 8 --microbatches 32 ";
  const std::string plain =
      shape +
      "--compare 1f1b,eager-1f1b,interleaved:2,interleaved:4,zb-h1,interleaved-zb:2,"
      "interleaved-zb:4";
  const std::string refilled = shape + "--refill --compare zbv,v-half,dualpipe-v,interleaved:2";
  using Row = std::vector<double>;
  EXPECT_EQ(reals(json(plain), "bubble"), (Row{21, 21, 10.5, 5.25, 7, 3.5, 1.75}));
  EXPECT_EQ(reals(json(plain + " --p2p 0.05"), "bubble"),
            (Row{24.4, 21.7, 12, 8.35, 8.4, 5.3, 4.35}));
  EXPECT_EQ(reals(json(plain + " --p2p 0.2"), "bubble"),
            (Row{34.6, 23.8, 16.5, 17.65, 12.6, 10.7, 24.6}));
  EXPECT_EQ(reals(json(refilled), "bubble"), (Row{3.5, 10.5, 3.5, 3.5}));
  EXPECT_EQ(reals(json(refilled + " --p2p 0.05"), "bubble"), (Row{4.55, 13.8, 4.05, 4.25}));
  EXPECT_EQ(reals(json(refilled + " --p2p 0.2"), "bubble"), (Row{8.6, 19.2, 7.7, 6.5}));
  EXPECT_EQ(reals(json(plain), "peak"), (Row{8, 15, 11.5, 9.75, 8, 8, 8}));
  EXPECT_EQ(reals(json(refilled), "peak"), (Row{8, 5, 8.5, 11.5}));
}

TEST(Simulate, JsonTellsOneSchedule) {
  const Json answer = json("--pp 4 --microbatches 8 --schedule zbv --costs 1.5,1.5,1.5");
  EXPECT_EQ(answer.find("schema")->as_text(), "lockstep.simulate/2");
  EXPECT_EQ(answer.find("pp")->as_int(), 4);
  EXPECT_EQ(answer.find("microbatches")->as_int(), 8);
  EXPECT_EQ(answer.find("costs")->find("weight_grad")->as_real(), 1.5);
  ASSERT_EQ(answer.find("schedules")->items().size(), 1u);
  const Json& one = answer.find("schedules")->items().front();
  EXPECT_EQ(one.find("schedule")->as_text(), "zbv");
  EXPECT_EQ(one.find("vpp")->as_int(), 2);
  EXPECT_EQ(one.find("step_time")->as_real(), 38.25);
  EXPECT_EQ(one.find("work")->as_real(), 36);
  EXPECT_EQ(one.find("bubble")->as_real(), 2.25);
  EXPECT_EQ(one.find("bubble_share")->as_real(), 2.25 / 38.25);
  EXPECT_EQ(one.find("bubble_without_barrier")->as_real(), 0);
  EXPECT_EQ(one.find("peak")->as_real(), 4);
  EXPECT_EQ(one.find("peak_per_rank")->items().size(), 4u);
  EXPECT_TRUE(one.find("splits_backward")->as_bool());
  EXPECT_TRUE(one.find("is_run")->as_bool());
}

// What is timed stage by stage and what is lowered op by op must agree where both mean the same:
// nothing to gather or reduce.
TEST(Simulate, AgreesWithTheWholeStep) {
  for (const std::string shape :
       {"--pp 4 --microbatches 8", "--pp 3 --microbatches 7 --costs 2,3,1.5",
        "--pp 4 --microbatches 8 --p2p 0.125"}) {
    const Json stages = json(shape + " --compare all");
    for (const std::string whole : {" --zero 0", " --zero 3", " --zero 1 --layers 3"}) {
      const Json step = json(shape + " --compare all" + whole);
      EXPECT_EQ(reals(step, "step_time"), reals(stages, "step_time")) << whole;
      EXPECT_EQ(reals(step, "bubble"), reals(stages, "bubble")) << whole;
      EXPECT_EQ(reals(step, "peak"), reals(stages, "peak")) << whole;
    }
  }
}

TEST(Simulate, CollectivesAndRecomputeTakeTime) {
  const auto makespan = [](const std::string& line) { return reals(json(line), "step_time")[0]; };
  EXPECT_EQ(makespan("--pp 1 --microbatches 4 --zero 0"), 12);
  EXPECT_EQ(makespan("--pp 1 --microbatches 4 --zero 0 --reduce 2"), 14);
  EXPECT_EQ(makespan("--pp 1 --microbatches 4 --zero 1 --gather 3 --reduce 2"), 17);
  EXPECT_EQ(makespan("--pp 1 --microbatches 4 --recompute"), 16);
  EXPECT_EQ(makespan("--pp 1 --microbatches 4 --recompute --layers 4 --costs 1,0.5,0.5"), 12);
  const Json recomputed = json("--pp 4 --microbatches 8 --recompute --layers 4");
  EXPECT_EQ(reals(recomputed, "peak")[0], 0.25);
  EXPECT_TRUE(recomputed.find("recompute")->as_bool());
}

TEST(Simulate, ComparesEveryScheduleThatTakesTheShape) {
  const Json answer = json("--pp 4 --microbatches 6 --compare all");
  const std::size_t rows = pipeline::catalog().size();
  EXPECT_EQ(answer.find("schedules")->items().size() + answer.find("refused")->items().size(),
            rows);
  ASSERT_FALSE(answer.find("refused")->items().empty());
  const Answer ran = run_simulate("--pp 4 --microbatches 6 --compare all");
  for (const pipeline::CatalogRow& row : pipeline::catalog())
    EXPECT_NE(ran.out.find(row.name), std::string::npos) << row.name;
  EXPECT_NE(ran.out.find("microbatches = 6 is\n"), std::string::npos) << ran.out;
}

TEST(Simulate, ACapMarksAndRefuses) {
  const Answer over = run_simulate("--pp 8 --microbatches 32 --memory-cap 5");
  EXPECT_EQ(over.code, ExitCode::kCheckFailed);
  EXPECT_EQ(over.out, "");
  EXPECT_NE(over.err.find("holds activations of 8 microbatches on pipeline rank 0, --memory-cap "
                          "allows 5"),
            std::string::npos)
      << over.err;
  EXPECT_NE(over.err.find("--schedule v-half"), std::string::npos) << over.err;
  EXPECT_EQ(run_simulate("--pp 8 --microbatches 32 --memory-cap 5 --schedule v-half").code,
            ExitCode::kOk);
  EXPECT_EQ(run_simulate("--pp 8 --microbatches 32 --memory-cap 2 --refill --schedule v-min").code,
            ExitCode::kCheckFailed);
  const Json table = json("--pp 8 --microbatches 32 --memory-cap 5 --compare 1f1b,v-half");
  EXPECT_FALSE(table.find("schedules")->items()[0].find("fits")->as_bool());
  EXPECT_TRUE(table.find("schedules")->items()[1].find("fits")->as_bool());
}

TEST(Simulate, AutoIsNoSlowerThanWhatFitsAndWithinTheCap) {
  for (const std::string shape : {"--pp 4 --microbatches 8", "--pp 3 --microbatches 5 --p2p 0.1"})
    for (const std::string cap : {"2", "3", "8"}) {
      const Json found = json(shape + " --schedule auto --memory-cap " + cap);
      const Json& one = found.find("schedules")->items().front();
      EXPECT_TRUE(one.find("fits")->as_bool());
      EXPECT_LE(one.find("lower_bound")->as_real(), one.find("step_time")->as_real());
      const Json named = json(shape + " --compare all --memory-cap " + cap);
      for (const Json& other : named.find("schedules")->items())
        if (other.find("fits")->as_bool()) {
          EXPECT_LE(one.find("step_time")->as_real(), other.find("step_time")->as_real())
              << other.find("schedule")->as_text();
        }
    }
}

void expect_fits(const Answer& ran, int width) {
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  std::istringstream lines(ran.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), static_cast<std::size_t>(width)) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

TEST_F(SimulateRun, EveryTableFitsItsWidth) {
  for (const int width : {42, 60, 80, 100}) {
    expect_fits(run_simulate("--compare all --memory-cap 3 --p2p 0.123", width), width);
    expect_fits(run_simulate("examples/tiny.toml --set layout.pp=2 --compare "
                             "interleaved-zb:2,zbv,dualpipe-v",
                             width),
                width);
  }
}

TEST(Simulate, EveryDrawingFitsItsWidth) {
  for (const int width : {40, 80, 100})
    for (const pipeline::CatalogRow& row : pipeline::catalog())
      for (const std::string more : {"", " --zero 3 --gather 0.5 --reduce 1 --p2p 0.1"}) {
        const Answer ran = run_simulate("--schedule " + std::string(row.name) + more, width);
        expect_fits(ran, width);
      }
}

TEST_F(SimulateFiles, ReadmeShowsWhatIsPrinted) {
  const std::string shown = run_simulate("--schedule zb-h1").out;
  const std::string readme = text_of("README.md");
  EXPECT_NE(readme.find("```\n" + shown + "```\n"), std::string::npos) << shown;
}

TEST_F(SimulateRun, TimesARunFile) {
  const Json tiny = json("examples/tiny.toml");
  EXPECT_EQ(tiny.find("pp")->as_int(), 1);
  EXPECT_EQ(tiny.find("microbatches")->as_int(), 8);
  EXPECT_NEAR(reals(tiny, "step_time")[0], 24, 1e-9);  // F + I + W = 3 F, whatever attention takes
  EXPECT_NEAR(reals(tiny, "bubble")[0], 0, 1e-9);
  EXPECT_GT(tiny.find("schedules")->items()[0].find("peak_bytes")->as_int(), 1'000'000);
  EXPECT_NE(run_simulate("examples/tiny.toml", 200).out.find("in proportion to FLOPs"),
            std::string::npos);

  const Json costs = json("examples/tiny.toml --set layout.pp=2 --costs 1,2,3");
  EXPECT_EQ(costs.find("costs")->find("weight_grad")->as_real(), 3);
  const Json all = json("examples/tiny.toml --set layout.pp=2 --compare all");
  EXPECT_GE(all.find("schedules")->items().size(), 10u);
}

TEST_F(SimulateRun, TimesALargeRunWithSchedulesOfItsOwn) {
  const std::string name = file("run.toml");
  std::ofstream(name) << "[model]\nname = \"llama3-405b\"\n[cluster]\nname = \"h100:16384\"\n"
                         "[layout]\ntp = 8\npp = 16\n[batch]\nseq = 8192\nglobal_batch = 4096\n";
  const Json answer = json(name + " --compare 1f1b,interleaved:4,zbv,dualpipe-v --p2p 0.05");
  EXPECT_EQ(answer.find("model")->as_text(), "llama3-405b");
  const std::vector<double> bubbles = reals(answer, "bubble");
  ASSERT_EQ(bubbles.size(), 4u);
  EXPECT_LT(bubbles[1], bubbles[0]);
  const auto peak = [](const Json& from) {
    const Json* found = from.find("schedules")->items()[0].find("peak_bytes");
    return found == nullptr ? 0 : found->as_int();
  };
  EXPECT_GT(peak(answer), 10'000'000'000);
  EXPECT_GT(peak(json(name + " --set layout.sp=false")), peak(answer));
  const std::string context = name + " --set layout.cp=2 --set layout.cp_comm_type=";
  EXPECT_GT(peak(json(context + "ring")), 0);
  EXPECT_LT(peak(json(context + "ring")), peak(answer));
  EXPECT_LT(peak(json(context + "ulysses")), peak(answer));
}

TEST_F(SimulateFiles, AreWrittenAndReadBack) {
  const Answer ran = run_simulate("--schedule zbv --csv " + file("a.csv") + " --svg " +
                                  file("a.svg") + " --trace " + file("a.json"));
  ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
  for (const char* name : {"a.csv", "a.svg", "a.json"})
    EXPECT_NE(ran.out.find("wrote " + file(name)), std::string::npos) << ran.out;
  EXPECT_TRUE(Json::parse(text_of(file("a.json"))).ok());
  EXPECT_TRUE(text_of(file("a.svg")).starts_with("<svg")) << text_of(file("a.svg")).substr(0, 80);
  const auto read = pipeline::from_csv(text_of(file("a.csv")));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, *pipeline::find("zbv")->build({4, 2, 8}));
  const Json again = json("--schedule " + file("a.csv"));
  EXPECT_EQ(reals(again, "step_time"), reals(json("--schedule zbv"), "step_time"));
  EXPECT_EQ(run_simulate("--schedule zbv --svg " + file("no/a.svg")).code, ExitCode::kEnvironment);
  EXPECT_EQ(run_simulate("--schedule " + file("a.csv") + " --pp 5").code, ExitCode::kUsage);
}

// Each command line with what it is answered: the page is reviewed as a whole.
TEST_F(SimulateFiles, WrongInputIsExplained) {
  const char* const lines[] = {
      "--schedule zvb",
      "--schedule foo",
      "--schedule zbv --pp 4 --vpp 3",
      "--vpp 2",
      "--costs 1,1",
      "--costs 1,x,1",
      "--costs 1,-1,1",
      "--costs 0,0,0",
      "--p2p -1",
      "--memory-cap 2",
      "--memory-cap 1 --pp 8 --schedule v-min",
      "--schedule auto --memory-cap 0.5",
      "--schedule auto --refill",
      "--schedule 1f1b --group 4",
      "--schedule interleaved --vpp 3 --microbatches 5",
      "--gather 1",
      "--zero 0 --gather 1",
      "--layers 3",
      "--recompute --memory-cap 3",
      "--set layout.pp=2",
      "examples/tiny.toml --pp 2 --zero 1 --recompute",
      "examples/tiny.toml --set layout.pp=4 --schedule zbv",
      "examples/none.toml",
      "zbv",
      "--schedule none.csv",
      "--schedule README.csv",
      "--compare 1f1b,zbv,1f1b",
      "--compare 1f1b,,zbv",
      "--compare 1f1b --schedule zbv",
      "--compare all --svg x.svg",
      "--compare 1f1b,interleaved --vpp 4",
      "--schedule interleaved:x",
      "--svg a --trace a",
      "--svg docs",
      "--pp 100000 --microbatches 100000",
      "--compare zvb,foo --costs 1 --group 3 --gather 1",
  };
  std::string page;
  for (const char* line : lines) {
    const Answer ran = run_simulate(line);
    EXPECT_NE(ran.code, ExitCode::kOk) << line;
    EXPECT_EQ(ran.out, "") << line;
    page += join_parts("$ lockstep simulate ", line, "\n", ran.err, "exit code ",
                       static_cast<int>(ran.code), "\n\n");
  }
  EXPECT_TRUE(support::matches_golden("cli/simulate_refusals.txt", page));
}

}  // namespace
}  // namespace lockstep::cli
