// The page of `plan --report` says what the JSON of the same question says: it is read back, tag by
// tag, and every number in sight is compared with the one at the path it names.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

const Words kLlama = {"--model", "llama3-70b", "--cluster",      "h100:512",
                      "--seq",   "8192",       "--global-batch", "512"};
const Words kDeepseek = {"--model", "deepseek-v3",    "--cluster", "h800:2048", "--seq",
                         "4096",    "--global-batch", "15360",     "--dtype",   "fp8"};

std::string in_temp(const std::string& name) { return testing::TempDir() + "plan_page_" + name; }

std::string read(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Page {
  ExitCode code = ExitCode::kBug;
  std::string html;
  Json json;
};

Page page_of(Words words) {
  const std::string name = in_temp("read.html");
  std::filesystem::remove(name);
  words.insert(words.begin(), "plan");
  words.insert(words.end(), {"--report", name, "--json"});
  const Answer ran = answer(plan_verb(), words);
  const auto json = Json::parse(ran.out);
  EXPECT_TRUE(json.ok()) << ran.err;
  return {ran.code, read(name), json.ok() ? *json : Json()};
}

std::string unescaped(std::string text) {
  for (const auto& [entity, letter] :
       {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&plusmn;", ""}, {"&amp;", "&"}})
    for (std::size_t at = 0; (at = text.find(entity, at)) != std::string::npos; ++at)
      text.replace(at, std::string(entity).size(), letter);
  return text;
}

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string inside;  // text of its own and of those in it
};

// Elements in the order in which they end, and texts that lie in none that names a path.
struct Read {
  std::vector<Element> elements;
  std::vector<std::string> bare;
};

std::map<std::string, std::string> attributes_of(const std::string& tag) {
  std::map<std::string, std::string> found;
  const std::regex each("([a-z-]+)=\"([^\"]*)\"");
  for (std::sregex_iterator at(tag.begin(), tag.end(), each), end; at != end; ++at)
    EXPECT_TRUE(found.emplace((*at)[1], unescaped((*at)[2])).second) << tag;
  return found;
}

// Drawings and styles are passed over; numbers in <cite> are of literature.
Read read_page(std::string html) {
  const auto drop = [&](const std::string& from, const std::string& to) {
    for (std::size_t at; (at = html.find(from)) != std::string::npos;)
      html.erase(at, html.find(to, at) + to.size() - at);
  };
  drop("<!DOCTYPE", ">"), drop("<meta", ">"), drop("<svg", "</svg>"), drop("<style", "</style>");
  Read read;
  std::vector<Element> open;
  for (std::size_t at = 0; at < html.size();) {
    const std::size_t next = std::min(html.find('<', at), html.size());
    if (const std::string text = unescaped(html.substr(at, next - at)); !text.empty()) {
      bool is_bare = true;
      for (Element& one : open) {
        one.inside += text;
        is_bare = is_bare && one.attributes.count("data-json") == 0 && one.name != "cite" &&
                  one.name != "title";
      }
      if (is_bare) read.bare.push_back(text);
    }
    if (next == html.size()) break;
    const std::size_t end = html.find('>', next);
    const std::string tag = html.substr(next + 1, end - next - 1);
    if (tag[0] != '/') {
      open.push_back({tag.substr(0, tag.find(' ')), attributes_of(tag), ""});
    } else {
      EXPECT_EQ(open.back().name, tag.substr(1));
      read.elements.push_back(open.back());
      open.pop_back();
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty());
  return read;
}

const Json* at(const Json& json, const std::string& path) {
  const Json* found = &json;
  for (const std::string_view part : split(path, '.')) {
    if (found == nullptr) return nullptr;
    if (!found->is_array()) {
      found = found->is_object() ? found->find(part) : nullptr;
      continue;
    }
    const auto index = number_in<std::size_t>(part);
    found = index && *index < found->items().size() ? &found->items()[*index] : nullptr;
  }
  return found;
}

// What a text such as "3 h 12 min" or "71.3 GiB" says, and half of its last digit.
struct Seen {
  double value = 0, within = 0;
};

Seen seen_in(const std::string& text, bool is_percent) {
  static const std::map<std::string, double> kUnits = {
      {"", 1},         {"x", 1},          {"s", 1},         {"ms", 1e-3},    {"us", 1e-6},
      {"ns", 1e-9},    {"min", 60},       {"h", 3600},      {"days", 86400}, {"k", 1e3},
      {"M", 1e6},      {"G", 1e9},        {"T", 1e12},      {"P", 1e15},     {"B", 1},
      {"KiB", 0x1p10}, {"MiB", 0x1p20},   {"GiB", 0x1p30},  {"TiB", 0x1p40}, {"GB/s", 1e9},
      {"TB/s", 1e12},  {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}};
  Seen seen;
  const std::regex each("([-+]?[0-9,]+)(\\.[0-9]+)?(e[-+]?[0-9]+)? ?([A-Za-z/%]*)");
  EXPECT_TRUE(std::regex_search(text, each)) << text;
  for (std::sregex_iterator one(text.begin(), text.end(), each), end; one != end; ++one) {
    const std::string unit = (*one)[4];
    EXPECT_TRUE(unit == "%" || kUnits.count(unit) == 1) << text;
    const double times = unit == "%" ? (is_percent ? 1 : 0.01) : kUnits.at(unit);
    const std::string digits = std::regex_replace(one->str(1), std::regex(","), "");
    seen.value += times * std::stod(digits + one->str(2) + one->str(3));
    seen.within = times * 0.5 * std::pow(10, one->str(2).empty() ? 0 : 1 - one->length(2)) *
                  (one->length(3) > 0 ? std::stod("1" + one->str(3)) : 1);
  }
  return seen;
}

void expect_same(const Element& shown, const std::string& path, const Json& json) {
  const Json* value = at(json, path);
  ASSERT_NE(value, nullptr) << path;
  if (value->is_text()) {
    EXPECT_EQ(shown.inside, value->as_text()) << path;
    return;
  }
  ASSERT_TRUE(value->is_number()) << path;
  EXPECT_EQ(shown.name, "data") << path;
  EXPECT_EQ(shown.attributes.at("value"), value->dump()) << path;
  const Seen seen = seen_in(shown.inside, path.ends_with("_percent"));
  EXPECT_NEAR(seen.value, value->as_real(), seen.within * (1 + 1e-6))
      << path << " " << shown.inside;
}

// Widths in percent, in their order, of what lies in elements of such a class.
std::vector<std::vector<double>> widths_of(const std::string& html, const std::string& part) {
  std::vector<std::vector<double>> found;
  const std::regex track("<(span|div) class=\"track[^\"]*\">(.*?)</\\1>"),
      width("width:([0-9.]+)%");
  for (std::sregex_iterator one(part.begin(), part.end(), track), end; one != end; ++one) {
    const std::string inside = (*one)[2];
    found.emplace_back();
    for (std::sregex_iterator bar(inside.begin(), inside.end(), width); bar != end; ++bar)
      found.back().push_back(std::stod((*bar)[1]) / 100);
  }
  EXPECT_FALSE(html.empty());
  return found;
}

std::string section(const std::string& html, const std::string& id) {
  const std::size_t from = html.find("<section id=\"" + id + "\"");
  EXPECT_NE(from, std::string::npos) << id;
  return html.substr(from, html.find("</section>", from) - from);
}

double sum_of(const std::vector<double>& parts) {
  double sum = 0;
  for (const double one : parts) sum += one;
  return sum;
}

// Bars are as long as what they stand for.
void expect_bars(const Page& page) {
  const auto terms = widths_of(page.html, section(page.html, "step"));
  double shares = 0;
  for (std::size_t i = 1; i < terms.size(); ++i) shares += sum_of(terms[i]);
  EXPECT_NEAR(sum_of(terms[0]), 1, 0.01);
  EXPECT_NEAR(sum_of(terms[0]), shares, 1e-9);
  const Json& best = *at(page.json, "plans.0");
  const double has = at(best, "memory.device_has_bytes")->as_real();
  const double all = std::max(has, at(best, "memory.device_bytes")->as_real());
  const std::string memory = section(page.html, "memory");
  const std::regex rank("stages\\.([0-9]+)\\.device_bytes\">[^<]*</data></div>");
  std::sregex_iterator at_rank(memory.begin(), memory.end(), rank), end;
  double most = 0;
  for (const std::vector<double>& stage : widths_of(page.html, memory)) {
    ASSERT_NE(at_rank, end);
    const double bytes =
        at(best, join_parts("stages.", (*at_rank++)[1].str(), ".device_bytes"))->as_real();
    EXPECT_NEAR(sum_of(stage), bytes / all, 5e-4);
    most = std::max(most, bytes);
  }
  EXPECT_EQ(at_rank, end);
  EXPECT_EQ(most, at(best, "memory.device_bytes")->as_real());
}

// `least`: numbers that a page of this kind has at least.
void expect_true(const Page& page, std::size_t least) {
  const Read read = read_page(page.html);
  std::set<std::string> paths;
  for (const Element& one : read.elements)
    if (const auto path = one.attributes.find("data-json"); path != one.attributes.end()) {
      expect_same(one, path->second, page.json);
      if (one.name == "data") paths.insert(path->second);
    }
  EXPECT_GE(paths.size(), least);
  const std::regex number("(^|[^A-Za-z0-9_-])[-+]?[0-9]");
  for (const std::string& text : read.bare)
    EXPECT_FALSE(std::regex_search(text, number)) << "a number that names no path: " << text;
  for (const char* path : {"step_s.total", "step_s.p50", "step_s.p95", "tokens_per_s", "mfu.causal",
                           "memory.device_bytes", "goodput.share"})
    EXPECT_EQ(paths.count(std::string("plans.0.") + path), 1U) << path;
  for (const char* id : {"answer", "alternatives", "step", "memory", "timeline", "sensitivity",
                         "cost", "uncertainty", "assumed", "sources"})
    section(page.html, id);
  expect_bars(page);
}

// One file: nothing in it is fetched or run.
void expect_alone(const std::string& html) {
  std::string bare = html;
  const std::string space = "http://www.w3.org/2000/svg";  // a name, never fetched
  for (std::size_t at; (at = bare.find(space)) != std::string::npos;) bare.erase(at, space.size());
  for (const char* reach : {"<script", "<link", "<img", "<iframe", "src=", "href=", "@import",
                            "@font-face", "http:", "https:", "javascript:", "onload"})
    EXPECT_EQ(bare.find(reach), std::string::npos) << reach;
  for (std::size_t at = 0; (at = bare.find("url(", at)) != std::string::npos; ++at)
    EXPECT_EQ(bare.at(at + 4), '#') << bare.substr(at, 40);
}

TEST(PlanPage, EveryNumberIsThatOfTheJson) {
  Words asked = kLlama;
  asked.insert(asked.end(), {"--tokens", "15e12", "--price", "2.5", "--what-if", "flops=2x"});
  const Page page = page_of(asked);
  EXPECT_EQ(page.code, ExitCode::kOk);
  expect_true(page, 200);
  expect_alone(page.html);
  EXPECT_NE(page.html.find("--what-if flops=2x"), std::string::npos);
  EXPECT_EQ(page_of(asked).html, page.html) << "equal questions, equal bytes";
}

TEST(PlanPage, EveryNumberOfAPlanWithExpertsToo) {
  const Page page = page_of(kDeepseek);
  EXPECT_EQ(page.code, ExitCode::kOk);
  expect_true(page, 200);
  expect_alone(page.html);
}

// What is asked changes none of the answer, and the picture is of what its caption says.
TEST(PlanPage, HoldsTheAnswerThatIsGivenWithoutIt) {
  const Page page = page_of(kLlama);
  Words words = kLlama;
  words.insert(words.begin(), "plan");
  words.insert(words.end(), {"--json", "--memory", "--explain"});
  const Json alone = *Json::parse(answer(plan_verb(), words).out);
  EXPECT_EQ(*alone.find("plans"), *page.json.find("plans"));
  const auto& near = at(page.json, "report.neighbours")->items();
  std::multiset<double> ours, theirs;
  for (const Json& one : near)
    if (one.find("found")->as_bool()) ours.insert(one.find("step_s")->as_real());
  for (const Json& one : alone.find("neighbours")->items())
    if (one.find("found")->as_bool()) theirs.insert(one.find("step_s")->as_real());
  EXPECT_EQ(ours, theirs);
  const std::regex told("step time ([0-9.]+) (s|ms)");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(page.html, found, told));
  const Seen seen = seen_in(found[1].str() + " " + found[2].str(), false);
  EXPECT_NEAR(seen.value, at(page.json, "report.timeline.step_s")->as_real(), seen.within * 1.001);
}

TEST(PlanPage, OtherQuestions) {
  const Words small = {"--model", "llama3-8b", "--cluster",      "h100:8",
                       "--seq",   "8192",      "--global-batch", "64"};
  const auto with = [&](Words more) {
    return more.insert(more.begin(), small.begin(), small.end()), more;
  };
  const Page flat = page_of(with({"--layout", "tp=8"}));
  expect_true(flat, 60);
  EXPECT_NE(flat.html.find("There is no pipeline"), std::string::npos);
  const Page full = page_of(with({"--layout", "pp=2,zero=0,recompute=none,microbatch=8"}));
  EXPECT_EQ(full.code, ExitCode::kCheckFailed);
  expect_true(full, 60);
  EXPECT_NE(full.html.find("Does not fit"), std::string::npos);
  Words borrowed = small;
  borrowed[3] = "v100:64";
  const Page rough = page_of(borrowed);
  expect_true(rough, 100);
  EXPECT_NE(rough.html.find("times are rough"), std::string::npos);
}

TEST(PlanPage, WordsOfTheUserAreText) {
  const std::string model = in_temp("model.toml");
  const std::string evil = "<script>alert('x')</script>\\\"&amp; <b onload=\\\"y\\\">";
  std::ofstream(model) << "like = \"llama3-8b\"\nname = \"" << evil << "\"\n";
  const std::string run = in_temp("run'<i>.toml");
  std::ofstream(run) << "[model]\nname = \"" << std::filesystem::path(model).filename().string()
                     << "\"\n[batch]\nseq = 8192\nglobal_batch = 64\nmicrobatch = 1\n"
                     << "[layout]\ndp = 8\nzero = 3\n[cluster]\nname = \"h100:8\"\n";
  const Page page = page_of({run});
  EXPECT_EQ(page.code, ExitCode::kOk);
  ASSERT_NE(page.json.find("model"), nullptr);
  EXPECT_EQ(page.json.find("model")->as_text(),
            "<script>alert('x')</script>\"&amp; <b onload=\"y\">");
  EXPECT_EQ(page.html.find("<script"), std::string::npos);
  EXPECT_EQ(page.html.find("<b onload"), std::string::npos);
  EXPECT_EQ(page.html.find("<i>.toml"), std::string::npos);
  expect_true(page, 60);
  EXPECT_NE(page.html.find("data-json=\"own.name\""), std::string::npos);
}

TEST(PlanPage, RefusesWhatMakesNoSense) {
  const auto told = [](Words more) {
    more.insert(more.begin(), kLlama.begin(), kLlama.end());
    more.insert(more.begin(), "plan");
    return answer(plan_verb(), more);
  };
  const std::string name = in_temp("same.html");
  std::filesystem::remove(name);
  EXPECT_NE(told({"--report", name, "--out", name}).err.find("--report and --out both write"),
            std::string::npos);
  EXPECT_NE(told({"--report", name, "--memory", "--svg", name}).err.find("--report and --svg"),
            std::string::npos);
  for (const Words& other : {Words{"--fits"}, Words{"--compare", "b200:256"}}) {
    Words words = {"--report", name};
    words.insert(words.end(), other.begin(), other.end());
    EXPECT_NE(told(words).err.find("--report would do nothing"), std::string::npos) << other[0];
  }
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_NE(told({"--report", name, "--calibration", "x.json"}).err.find("--calibration"),
            std::string::npos);
  const Answer nowhere = told({"--report", "/nowhere/at/all.html"});
  EXPECT_EQ(nowhere.code, ExitCode::kEnvironment);
  std::ofstream(name) << "old";
  EXPECT_EQ(told({"--report", name}).code, ExitCode::kOk);
  EXPECT_EQ(read(name).substr(0, 15), "<!DOCTYPE html>");
}

}  // namespace
}  // namespace lockstep::cli
