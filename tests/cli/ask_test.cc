// A request in JSON is answered with the very object that the verb prints with --json.
#include "cli/ask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cli/verbs.h"
#include "tests/cli/answer.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

Json parsed(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *json : Json();
}

Json asked(const std::string& request) { return parsed(ask_text(request)); }

const std::string kLlama =
    R"("verb": "plan", "model": "llama3-8b", "cluster": "h100:16", "seq": 8192, "global_batch": 64)";
const Words kLlamaWords = {"plan",  "--model", "llama3-8b",      "--cluster", "h100:16",
                           "--seq", "8192",    "--global-batch", "64"};

// The planner says how long it took.
std::string without_times(Json json) {
  for (const char* name : {"walk_s", "all_s"})
    if (json.find(name) != nullptr) json.set(name, 0);
  return json.dump();
}

TEST(Ask, AnswersWhatTheVerbPrints) {
  const std::pair<std::string, Words> questions[] = {
      {kLlama, kLlamaWords},
      {kLlama + R"(, "top": 2, "what_if": ["network=2x", "memory=2x"], "for": null)",
       {"--top", "2", "--what-if", "network=2x", "--what-if", "memory=2x"}},
      {kLlama + R"(, "tokens": "1T", "price": 2.5, "explain": true, "fits": false)",
       {"--tokens", "1T", "--price", "2.5", "--explain"}},
      {kLlama + R"(, "fits": true, "layout": "tp=8")", {"--fits", "--layout", "tp=8"}},
      {R"("verb": "simulate", "schedule": "zbv", "pp": 4, "microbatches": 12, "p2p": 0.05)",
       {"simulate", "--schedule", "zbv", "--pp", "4", "--microbatches", "12", "--p2p", "0.05"}},
      {R"("verb": "model", "model": "llama3-8b")", {"model", "llama3-8b"}},
      {R"("verb": "model", "list": true)", {"model", "--list"}},
      {R"("verb": "cluster", "cluster": "h100:64")", {"cluster", "h100:64"}}};
  for (const auto& [request, more] : questions) {
    Words words = more;
    if (more[0].starts_with("--"))
      words.insert(words.begin(), kLlamaWords.begin(), kLlamaWords.end());
    words.push_back("--json");
    const Answer printed = answer(catalog(), words);
    const Json reply = asked("{" + request + "}");
    EXPECT_EQ(reply.find("exit_code")->as_int(), static_cast<int>(printed.code)) << request;
    EXPECT_EQ(without_times(*reply.find("answer")), without_times(parsed(printed.out))) << request;
    EXPECT_EQ(reply.find("refusal"), nullptr) << request;
  }
}

// Exit code 1 comes with an answer, or with the reason why there is none.
TEST(Ask, TellsWhatDoesNotFit) {
  const Json reply = asked("{" + kLlama + R"(, "layout": "tp=1,pp=1,zero=0", "fits": true})");
  EXPECT_EQ(reply.find("exit_code")->as_int(), 1);
  EXPECT_FALSE(reply.find("answer")->find("fits")->as_bool());
}

TEST(Ask, AnswersFilesAndWritesNone) {
  const std::string name = testing::TempDir() + "ask_memory.svg";
  const Json reply = asked("{" + kLlama + R"(, "memory": true, "svg": ")" + name +
                           R"(", "report": "page.html", "out": "run.json"})");
  ASSERT_EQ(reply.find("exit_code")->as_int(), 0) << reply.dump(2);
  const Json& files = *reply.find("files");
  EXPECT_TRUE(files.find(name)->as_text().starts_with("<svg"));
  EXPECT_NE(files.find("page.html")->as_text().find("<!DOCTYPE html>"), std::string::npos);
  EXPECT_TRUE(Json::parse(files.find("run.json")->as_text()).ok());
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_FALSE(std::filesystem::exists("page.html"));
  const Json drawn = asked(R"({"verb": "simulate", "schedule": "1f1b", "svg": "step.svg"})");
  EXPECT_TRUE(drawn.find("files")->find("step.svg")->as_text().starts_with("<svg"));
  EXPECT_TRUE(drawn.find("answer")->is_object());
  const Json states =
      asked(R"({"verb": "model", "model": "llama3-8b", "dp": 8, "svg": ")" + name + R"("})");
  EXPECT_TRUE(states.find("files")->find(name)->as_text().starts_with("<svg"));
  EXPECT_FALSE(std::filesystem::exists(name));
}

// The first diagnostic of a refused request.
void expect_refused(const std::string& request, Code code, const std::string& message) {
  const Json reply = asked(request);
  ASSERT_NE(reply.find("refusal"), nullptr) << reply.dump();
  EXPECT_TRUE(reply.find("answer")->is_null());
  EXPECT_EQ(reply.find("exit_code")->as_int(), static_cast<int>(exit_code_of(code)));
  const Json& first = reply.find("refusal")->find("diagnostics")->items().at(0);
  EXPECT_EQ(first.find("code")->as_text(), to_text(code)) << first.dump();
  EXPECT_NE(first.find("message")->as_text().find(message), std::string::npos) << first.dump();
}

TEST(Ask, RefusesWhatIsNoRequest) {
  expect_refused("", Code::kSyntax, "1:1");
  expect_refused("[]", Code::kSyntax, "a request is an object");
  expect_refused("{}", Code::kUnknownCommand, "no verb ``");
  expect_refused(R"({"verb": 3})", Code::kUnknownCommand, "no verb ``");
  expect_refused(R"({"verb": "train"})", Code::kUnknownCommand, "no verb `train`");
  expect_refused(R"({"verb": "plan", "verb": "model"})", Code::kSyntax, "verb");
}

TEST(Ask, RefusesFieldsByNameAndValue) {
  expect_refused(R"({"verb": "plan", "modle": "llama3-8b"})", Code::kUnknownOption, "`modle`");
  expect_refused(R"({"verb": "plan", "global-batch": 3})", Code::kUnknownOption, "`global-batch`");
  expect_refused("{" + kLlama + R"(, "explain": "yes"})", Code::kBadOptionValue, "`explain`");
  expect_refused("{" + kLlama + R"(, "headroom": true})", Code::kBadOptionValue, "`headroom`");
  expect_refused("{" + kLlama + R"(, "top": [1]})", Code::kBadOptionValue, "`top`");
  expect_refused("{" + kLlama + R"(, "top": 1.5})", Code::kBadOptionValue, "1.5");
  expect_refused("{" + kLlama + R"(, "top": 99})", Code::kBadOptionValue, "99");
  expect_refused("{" + kLlama + R"(, "what_if": [{}]})", Code::kBadOptionValue, "`what_if`");
  expect_refused("{" + kLlama + R"(, "dtype": "f16"})", Code::kBadOptionValue, "no choice `f16`");
  expect_refused("{" + kLlama + R"(, "csv": true})", Code::kConflict, "--csv");
  expect_refused(R"({"verb": "plan", "model": "lama"})", Code::kUnknownModel, "`lama`");
}

// A verb that can be asked is one of the program, and no two of its fields have one name.
TEST(Ask, EveryFieldHasItsName) {
  for (const Verb& verb : askable()) {
    const auto found = std::ranges::find(catalog(), verb.name, &Verb::name);
    ASSERT_NE(found, catalog().end());
    EXPECT_EQ(found->run, verb.run);
    expect_refused(R"({"verb": ")" + verb.name + R"(", "no such": 1})", Code::kUnknownOption,
                   "`no such`");
  }
}

TEST(Ask, ThreadsDoNotMeet) {
  const std::string request = R"({"verb": "simulate", "schedule": "1f1b", "pp": 8})";
  const std::string alone = ask_text(request);
  std::vector<std::string> replies(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& reply : replies) threads.emplace_back([&] { reply = ask_text(request); });
  }
  for (const std::string& reply : replies) EXPECT_EQ(reply, alone);
}

}  // namespace
}  // namespace lockstep::cli
