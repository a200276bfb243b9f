// Questions that `lockstep plan` answers besides the best layout: whose model, which of several,
// does it fit, how many devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cli/text_file.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/cluster/catalog.h"
#include "lockstep/cluster/rates.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/model/catalog.h"
#include "lockstep/planner/goodput.h"
#include "lockstep/planner/seek.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

Answer ask(const Words& more) {
  Words words = {"plan", "--global-batch", "512"};
  words.insert(words.end(), more.begin(), more.end());
  const auto lacks = [&](const char* option) {
    return std::ranges::find(words, option) == words.end();
  };
  if (lacks("--model")) words.insert(words.end(), {"--model", "llama3-8b"});
  if (lacks("--seq")) words.insert(words.end(), {"--seq", "8192"});
  return answer(plan_verb(), words);
}

Json answer_of(Words more, ExitCode code = ExitCode::kOk) {
  more.emplace_back("--json");
  const Answer ran = ask(more);
  EXPECT_EQ(ran.code, code) << ran.err;
  auto json = Json::parse(ran.out);
  EXPECT_TRUE(json.ok()) << ran.out << ran.err;
  return json.ok() ? *json : Json::object();
}

const Json& best(const Json& json) { return json.find("plans")->items()[0]; }

double seconds(const Json& plan) { return plan.find("step_s")->find("total")->as_real(); }

TEST(PlanModel, OfHuggingFaceIsPlannedLikeItsRow) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "plan-hf";
  for (const char* name : {"llama3.1-8b", "qwen2-7b", "qwen3-8b", "mistral-7b", "gpt2-xl"}) {
    std::filesystem::create_directories(folder / name);
    const std::string file = (folder / name / "config.json").string();
    std::ofstream(file) << hf::config_json(model::find(name)->config, DType::kBF16)->dump(2);
    const Words common = {"--cluster", "h100:16", "--seq", "1k", "--model"};
    const auto plan = [&](const std::string& model) {
      Words words = common;
      words.push_back(model);
      return answer_of(words);
    };
    const Json known = plan(name);
    for (const std::string& path :
         {(folder / name).string(), (folder / name / "").string(), file}) {
      const Json read = plan(path);
      EXPECT_EQ(read.find("model")->as_text(), name);
      EXPECT_EQ(seconds(best(read)), seconds(best(known)));
      EXPECT_EQ(best(read).find("name")->as_text(), best(known).find("name")->as_text());
    }
  }
  std::ofstream(folder / "config.json") << R"({"model_type": "mamba", "hidden_size": 64})";
  const Answer unknown = ask({"--cluster", "h100:8", "--model", folder.string()});
  EXPECT_EQ(unknown.code, ExitCode::kEnvironment);
  for (const char* part : {"LS0840", "\"mamba\"", "`llama`", "`deepseek_v3`", "`gemma2`"})
    EXPECT_NE(unknown.err.find(part), std::string::npos) << unknown.err;
}

// A run file of such a model says all of it, because no name would.
TEST(PlanModel, OfHuggingFaceIsWrittenWhole) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "plan-hf-out";
  std::filesystem::create_directories(folder / "own");
  model::ModelConfig own = model::find("qwen3-8b")->config;
  own.layers = 12;
  std::ofstream(folder / "own" / "config.json") << hf::config_json(own, DType::kBF16)->dump(2);
  const std::string out = (folder / "plan.json").string();
  const Json made =
      answer_of({"--cluster", "h100:8", "--model", (folder / "own").string(), "-o", out});
  const Answer again = answer(plan_verb(), {"plan", out, "--json"});
  ASSERT_EQ(again.code, ExitCode::kOk) << again.err;
  EXPECT_EQ(seconds(best(*Json::parse(again.out))), seconds(best(made)));
}

TEST(PlanSuffixes, AreTheNumbersThatTheyStandFor) {
  const Words plain = {"--cluster", "h100:64", "--tokens", "1500000000000", "--price", "2.5"};
  const Json known = answer_of(plain);
  const auto money = [](const Json& json) {
    return best(json).find("run")->find("money")->as_real();
  };
  const std::vector<Words> same = {
      {"--cluster", "h100:64", "--tokens", "1.5T", "--price", "2.5"},
      {"--cluster", "h100:64", "--tokens", "1.5t", "--price", "$2.5"},
      {"--cluster", "h100:64", "--tokens", "1500B", "--price", "$2.5"},
      {"--cluster", "h100", "--devices", "64", "--tokens", "1500G", "--price", "2.5"},
      {"--cluster", "NVIDIA H100 80GB HBM3:64", "--tokens", "1.5e12", "--price", "0.0025k"},
      {"--cluster", "h100:64", "--tokens", "1.5 T", "--price", "$2.5", "--seq", "8k"},
      {"--cluster", "h100:0.0625k", "--tokens", "1500000M", "--price", "2.5", "--seq", "8K"},
      {"--cluster", "h100:64", "--tokens", "1.5T", "--price", "2.5", "--mtbf", "50.7k"}};
  for (const Words& words : same) EXPECT_EQ(money(answer_of(words)), money(known));
  for (const Words& words : std::vector<Words>{{"--tokens", "1TB"},
                                               {"--tokens", "1,000"},
                                               {"--price", "$ 2.5"},
                                               {"--seq", "8kB"},
                                               {"--seq", "8.3k"},
                                               {"--seq", "1e3k"},
                                               {"--devices", "$8"}}) {
    Words all = {"--cluster", "h100:64"};
    all.insert(all.end(), words.begin(), words.end());
    const Answer ran = ask(all);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << words[1];
    EXPECT_NE(ran.err.find(words[0]), std::string::npos) << ran.err;
  }
}

// Every row is the plan that would be asked for by itself.
TEST(PlanCompare, ShowsTheBestOfEach) {
  const Json json =
      answer_of({"--cluster", "h100:64", "--compare", "b200:32@3.5", "--compare", "16,32",
                 "--compare", "tp=8,zero=1", "--tokens", "1T", "--price", "2"});
  const auto& rows = json.find("compared")->items();
  ASSERT_EQ(rows.size(), 5U);
  const std::vector<Words> alone = {
      {"--cluster", "h100:64", "--price", "2"},
      {"--cluster", "b200:32", "--price", "3.5"},
      {"--cluster", "h100:16", "--price", "2"},
      {"--cluster", "h100:32", "--price", "2"},
      {"--cluster", "h100:64", "--price", "2", "--layout", "tp=8,zero=1"}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Words words = alone[i];
    words.insert(words.end(), {"--tokens", "1T"});
    EXPECT_EQ(rows[i].find("plan")->dump(), best(answer_of(words)).dump());
    EXPECT_EQ(rows[i].find("cluster")->as_text(), words[1]);
  }
  const Answer text = ask({"--cluster", "h100", "--compare", "64..256"});
  for (const char* part : {"h100:64", "h100:128", "h100:256", "1.00x"})
    EXPECT_NE(text.out.find(part), std::string::npos) << text.out;
  // A run file without a cluster is no row of its own.
  const std::string run = ::testing::TempDir() + "plan-compare.toml";
  std::ofstream(run) << "[model]\nname = 'llama3-8b'\n[batch]\nseq = 8192\nglobal_batch = 512\n";
  for (const auto& [more, expected] : {std::pair{"", 2U}, {"cluster.name='h100:8'", 3U}}) {
    Words words = {"plan", run, "--compare", "h100:64", "--compare", "b200:32", "--json"};
    if (*more != '\0') words.insert(words.end(), {"--set", more});
    const Answer ran = answer(plan_verb(), words);
    ASSERT_EQ(ran.code, ExitCode::kOk) << ran.err;
    EXPECT_EQ(Json::parse(ran.out)->find("compared")->items().size(), expected);
  }
  const Answer small = ask({"--cluster", "h100:8", "--compare", "h100:1", "--model", "llama3-70b"});
  EXPECT_EQ(small.code, ExitCode::kCheckFailed);
  EXPECT_NE(small.out.find("does not fit: every layout needs"), std::string::npos) << small.out;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

// Rows of one cluster are told apart, and what does not fit is no winner.
TEST(PlanCompare, TellsRowsApart) {
  const Words money = {"--tokens", "1T", "--price", "2"};
  Words words = {"--cluster", "h100:64", "--compare", "h100:64@3"};
  words.insert(words.end(), money.begin(), money.end());
  const Answer prices = ask(words);
  ASSERT_EQ(lines_with(prices.out, "price").size(), 1U) << prices.out;
  EXPECT_EQ(lines_with(prices.out, "devices").size(), 0U) << prices.out;
  EXPECT_EQ(lines_with(prices.out, "  h100:64      3  ").size(), 1U) << prices.out;
  words = {"--cluster", "h100:64", "--compare", "h100:512", "--objective", "cost"};
  words.insert(words.end(), money.begin(), money.end());
  const Json json = answer_of(words);
  const Answer fewer = ask(words);
  EXPECT_EQ(lines_with(fewer.out, "devices").size(), 1U) << fewer.out;
  for (const Json& one : json.find("compared")->items()) {
    const std::int64_t devices = one.find("plan")->find("devices")->as_int();
    const auto row = lines_with(fewer.out, one.find("cluster")->as_text() + " ");
    ASSERT_EQ(row.size(), 1U) << fewer.out;
    EXPECT_NE(row[0].find(" " + std::to_string(devices) + " "), std::string::npos) << fewer.out;
  }
  const Answer unfit = ask({"--cluster", "h100:8", "--compare",
                            "tp=1,zero=0,recompute=none,microbatch=64", "--compare", "tp=8"});
  const auto rows = lines_with(unfit.out, "h100:8");
  ASSERT_EQ(rows.size(), 3U) << unfit.out;
  EXPECT_NE(rows[0].find("1.00x"), std::string::npos) << unfit.out;
  EXPECT_EQ(rows[1].find("x "), std::string::npos) << unfit.out;
  EXPECT_EQ(lines_with(unfit.out, "does not fit: ").size(), 1U) << unfit.out;
}

TEST(PlanCompare, SaysANoteOnce) {
  const Answer all = ask({"--cluster", "v100:64", "--compare", "v100:128"});
  EXPECT_EQ(lines_with(all.out, "rates of v100").size(), 1U) << all.out;
  const Answer one = ask({"--cluster", "h100:64", "--compare", "v100:64", "--csv"});
  const auto notes = lines_with(one.err, "rates of v100");
  ASSERT_EQ(notes.size(), 1U) << one.err;
  EXPECT_TRUE(notes[0].starts_with("row 2: note: ")) << notes[0];
}

TEST(PlanCompare, RefusesListsThatAreNone) {
  for (const auto& [list, says] : {std::pair{"64,0", "`0` is no number of devices"},
                                   {"64,,128", "`` is no number of devices"},
                                   {"64..1.5", "`1.5` is no number of devices"},
                                   {"512..64", "the nearest: --compare 64..512"},
                                   {"8..16,32", "the nearest: --compare 8..32"},
                                   {"64x", "`64x` is no number of devices"}}) {
    const Answer ran = ask({"--cluster", "h100", "--compare", list});
    EXPECT_EQ(ran.code, ExitCode::kUsage) << list;
    EXPECT_NE(ran.err.find(says), std::string::npos) << ran.err;
  }
}

TEST(PlanCsv, SaysWhatJsonSays) {
  const Words words = {"--cluster", "h100", "--compare", "1,8,64",
                       "--tokens",  "1T",   "--price",   "2"};
  Words as_csv = words;
  as_csv.emplace_back("--csv");
  std::istringstream lines(ask(as_csv).out);
  std::string header, line;
  std::getline(lines, header);
  const std::vector<std::string_view> names = split(header, ',');
  const Json json = answer_of(words);
  for (const Json& one : json.find("compared")->items()) {
    ASSERT_TRUE(std::getline(lines, line));
    std::map<std::string, std::string, std::less<>> cells;
    std::string cell;
    bool quoted = false;
    std::size_t column = 0;
    for (const char letter : line + ",") {
      if (letter == '"') quoted = !quoted;
      if (letter == ',' && !quoted)
        cells[std::string(names.at(column++))] = std::exchange(cell, "");
      else if (letter != '"')
        cell += letter;
    }
    ASSERT_EQ(column, names.size()) << line;
    EXPECT_EQ(cells["cluster"], one.find("cluster")->as_text());
    EXPECT_EQ(cells["fits"], one.find("found")->as_bool() ? "true" : "false");
    if (!one.find("found")->as_bool()) continue;
    const Json& plan = *one.find("plan");
    EXPECT_EQ(cells["layout"], plan.find("name")->as_text());
    EXPECT_EQ(std::stod(cells["step_s"]), seconds(plan));
    EXPECT_EQ(std::stod(cells["tokens_per_s"]), plan.find("tokens_per_s")->as_real());
    EXPECT_EQ(std::stod(cells["mfu"]), plan.find("mfu")->find("causal")->as_real());
    EXPECT_EQ(std::stod(cells["memory_bytes"]),
              plan.find("memory")->find("device_bytes")->as_real());
    EXPECT_EQ(std::stod(cells["money"]), plan.find("run")->find("money")->as_real());
  }
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(PlanFits, IsAGate) {
  const struct {
    Words words;
    bool fits;
  } cases[] = {{{"--cluster", "h100:8"}, true},
               {{"--cluster", "h100:1"}, false},
               {{"--cluster", "h100:8", "--layout", "zero=3,recompute=full,microbatch=1"}, true},
               {{"--cluster", "h100:8", "--layout", "zero=0,recompute=none,microbatch=1"}, false}};
  for (const auto& [words, fits] : cases) {
    Words gate = words;
    gate.emplace_back("--fits");
    const Answer ran = ask(gate);
    EXPECT_EQ(ran.code, fits ? ExitCode::kOk : ExitCode::kCheckFailed) << ran.out << ran.err;
    EXPECT_TRUE(ran.out.starts_with(fits ? "fits: " : "does not fit: ")) << ran.out;
    EXPECT_EQ(std::ranges::count(ran.out, '\n'), 1) << ran.out;
    const Json json = answer_of(gate, ran.code);
    EXPECT_EQ(json.find("fits")->as_bool(), fits);
    if (json.find("device_bytes")->is_number()) {
      EXPECT_EQ(json.find("device_bytes")->as_real() <= json.find("device_has_bytes")->as_real(),
                fits);
    }
  }
  EXPECT_EQ(ask({"--cluster", "h100:24", "--fits"}).code, ExitCode::kOk);
  EXPECT_EQ(ask({"--cluster", "h1000:8", "--fits"}).code, ExitCode::kUsage);
}

// A run file's own layout is what runs, so that is judged, whatever else would fit.
TEST(PlanFits, JudgesTheLayoutOfARunFile) {
  const std::string file = testing::TempDir() + "fits.toml";
  for (const int zero : {0, 3}) {
    ASSERT_TRUE(write_text(file, join_parts("model.name = \"llama3-8b\"\n[cluster]\nname = "
                                            "\"h100:8\"\n[layout]\ndp = 8\nzero = ",
                                            zero,
                                            "\nrecompute = \"full\"\n[batch]\nseq = 8192\n"
                                            "global_batch = 8\nmicrobatch = 1\n"))
                    .ok());
    const Answer ran = answer(plan_verb(), {"plan", file, "--fits"}, 0);
    EXPECT_EQ(ran.code, zero == 3 ? ExitCode::kOk : ExitCode::kCheckFailed) << ran.out << ran.err;
    EXPECT_NE(ran.out.find(join_parts("dp8 zero", zero)), std::string::npos) << ran.out;
  }
  std::filesystem::remove(file);
}

// Days of every number of devices, by the search alone.
struct Trained {
  std::int64_t devices;
  double days, money;
};

std::vector<Trained> all_runs(const std::string& model, const std::vector<std::int64_t>& counts,
                              double tokens, double price) {
  const cost::ModelShape shape = cost::shape_of(model::find(model)->config);
  std::vector<Trained> runs;
  for (const std::int64_t count : counts) {
    const cluster::Cluster cluster = *cluster::cluster_from_name(join_parts("h100:", count));
    planner::Question question;
    question.shape = &shape;
    question.cluster = &cluster;
    question.rates = &cluster::rates_of(cluster.device);
    question.devices = count;
    question.seq = 8192;
    question.global_batch = 512;
    const planner::Sought found = planner::seek(question);
    if (found.best.empty()) continue;
    const auto devices = static_cast<double>(count);
    const double share =
        planner::goodput(devices, {.device_hours = 50700, .save_s = 5, .restart_s = 300}).share;
    const double hours = tokens / (512 * 8192) * found.best.front().seconds / share / 3600;
    runs.push_back({count, hours / 24, hours * devices * price});
  }
  return runs;
}

std::optional<std::int64_t> chosen(Words more) {
  more.insert(more.end(), {"--cluster", "h100:80", "--tokens", "100B", "--price", "2", "--json"});
  const Answer ran = ask(more);
  if (ran.code == ExitCode::kCheckFailed) {
    EXPECT_NE(ran.err.find("LS0216"), std::string::npos) << ran.err;
    return std::nullopt;
  }
  EXPECT_EQ(ran.code, ExitCode::kOk) << ran.err;
  return best(*Json::parse(ran.out)).find("devices")->as_int();
}

TEST(PlanTargets, AreMetByTheFewestOrTheFastest) {
  const std::vector<std::int64_t> counts = {1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80};
  const std::vector<Trained> runs = all_runs("llama3-8b", counts, 100e9, 2);
  ASSERT_GE(runs.size(), 6U);
  std::mt19937 random(3);
  for (int i = 0; i < 6; ++i) {
    const Trained& near = runs[random() % runs.size()];
    // Just enough, or not quite.
    const double days = near.days * (i % 2 == 0 ? 1.001 : 0.999), money = near.money * 1.001;
    std::optional<std::int64_t> fewest, both, fastest;
    double least = 1e300;
    for (const Trained& run : runs) {
      if (run.days <= days && !fewest) fewest = run.devices;
      if (run.days <= days && run.money <= money && !both) both = run.devices;
      if (run.money <= money && run.days < least) least = run.days, fastest = run.devices;
    }
    const std::string limit = shortest(days), most = "$" + shortest(money);
    EXPECT_EQ(chosen({"--target-days", limit}), fewest) << limit;
    EXPECT_EQ(chosen({"--max-cost", most}), fastest) << most;
    if (i < 3) {
      EXPECT_EQ(chosen({"--target-days", limit, "--max-cost", most}), both);
    }
  }
}

TEST(PlanTargets, OptionsThatWouldDoNothingAreRefused) {
  const std::vector<Words> cases = {
      {"--target-days", "30"},
      {"--max-cost", "$1M", "--tokens", "1T"},
      {"--target-days", "30", "--tokens", "1T", "--layout", "tp=8"},
      {"--target-days", "30", "--tokens", "1T", "--objective", "cost"},
      {"--fits", "--explain"},
      {"--csv", "--memory"},
      {"--csv", "--json"},
      {"--compare", "16", "--explain"},
      {"--layout", "tp=8", "--runnable"},
      {"--layout", "pp=2,schedule=zbv", "--schedules", "1f1b"},
      {"--layout", "tp=8", "--top", "3"}};
  for (Words words : cases) {
    words.insert(words.end(), {"--cluster", "h100:64"});
    const Answer ran = ask(words);
    EXPECT_EQ(ran.code, ExitCode::kUsage) << words[0] << ran.out;
    EXPECT_NE(ran.err.find("LS0106"), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace lockstep::cli
