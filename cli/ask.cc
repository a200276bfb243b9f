#include "cli/ask.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>
#include <utility>

#include "cli/parse.h"
#include "cli/run_file.h"
#include "cli/verbs.h"
#include "lockstep/base/check.h"
#include "lockstep/base/units.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cli {
namespace {

std::string field_of(std::string name) {
  for (char& c : name)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

Error wrong(const std::string& field, const char* takes, const Json& value) {
  return {Code::kBadOptionValue, join_parts("`", field, "` takes ", takes, ", not ", value.dump()),
          ""};
}

Result<std::string> word_of(const std::string& field, const Json& value) {
  if (value.is_text()) return value.as_text();
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_number()) return shortest(value.as_real());
  return wrong(field, "a text or a number", value);
}

Result<std::vector<std::string>> words_of(const std::string& field, const Json& value,
                                          bool repeated) {
  if (!value.is_array()) return std::vector{LS_TRY(word_of(field, value))};
  if (!repeated) return wrong(field, "one value", value);
  std::vector<std::string> words;
  for (const Json& item : value.items()) words.push_back(LS_TRY(word_of(field, item)));
  return words;
}

// An option or argument of the verb.
struct Field {
  std::string name;  // in Args
  bool is_flag, repeated;
};

std::map<std::string, Field> fields_of(const Verb& verb) {
  std::map<std::string, Field> fields;
  for (const Option& option : verb.options)
    fields[field_of(option.name)] = {option.name, option.value.empty(), option.repeated};
  for (const Positional& one : verb.positionals)
    fields[field_of(one.name)] = {one.name, false, one.repeated};
  LS_CHECK(fields.size() == verb.options.size() + verb.positionals.size(), verb.name);
  return fields;
}

Result<Given> given_in(const Verb& verb, const Json& request) {
  const std::map<std::string, Field> fields = fields_of(verb);
  Given given;
  for (const auto& [key, value] : request.members()) {
    if (key == "verb") continue;
    const auto field = fields.find(key);
    if (field == fields.end()) {
      std::vector<std::string> names;
      for (const auto& one : fields) names.push_back(one.first);
      return Error{Code::kUnknownOption, join_parts("`", verb.name, "` has no field `", key, "`"),
                   config::did_you_mean(key, names, config::there_are(names))};
    }
    if (value.is_null()) continue;
    const auto& [name, is_flag, repeated] = field->second;
    if (is_flag && !value.is_bool()) return wrong(key, "true or false", value);
    if (!is_flag)
      given[name] = LS_TRY(words_of(key, value, repeated));
    else if (value.as_bool())
      given[name] = {"true"};
  }
  return given;
}

Result<ExitCode> run(const Json& request, Output& output) {
  if (!request.is_object())
    return Error{Code::kSyntax, "a request is an object", R"(write {"verb": "plan", ...})"};
  const Json* const named = request.find("verb");
  const std::string name = named != nullptr && named->is_text() ? named->as_text() : "";
  const auto verb = std::ranges::find(askable(), name, &Verb::name);
  if (verb == askable().end())
    return Error{Code::kUnknownCommand, join_parts("no verb `", name, "` can be asked"),
                 config::there_are(names_of(askable()))};
  const Given given = LS_TRY(given_in(*verb, request));
  return verb->run(LS_TRY(check_args(*verb, verb->name, given, variable)), output);
}

// What fail() wrote.
Json refusal_in(const std::string& told) {
  Result<Json> parsed = Json::parse(told);
  if (parsed.ok()) return *std::move(parsed);
  config::Report report;
  report.add(Error{Code::kBug, join_parts("no answer, but: ", told), ""});
  return report.json("");
}

Json reply_to(const std::function<Result<ExitCode>(Output&)>& work) {
  std::ostringstream out, err;
  Json files = Json::object();
  Output output{.out = out, .err = err, .json = true};
  output.write = [&](const std::string& name, const std::string& text) {
    return files.set(name, text), Result<void>();
  };
  const Result<ExitCode> ended = guarded([&] { return work(output); });
  const ExitCode code = ended.ok() ? *ended : fail(output, ended.error());
  Json reply = Json::object({{"exit_code", static_cast<int>(code)}});
  Result<Json> answer = Json::parse(out.str());
  if (!answer.ok())
    return reply.set("answer", Json()).set("refusal", refusal_in(out.str() + err.str()));
  return reply.set("answer", *std::move(answer))
      .set("files", std::move(files))
      .set("notes", err.str());
}

}  // namespace

const std::vector<Verb>& askable() {
  static const std::vector<Verb> verbs = {plan_verb(), simulate_verb(), model_verb(),
                                          cluster_verb(), backtest_verb()};
  return verbs;
}

Json ask(const Json& request) {
  return reply_to([&](Output& output) { return run(request, output); });
}

std::string ask_text(std::string_view request) {
  Result<Json> parsed = Json::parse(request);
  if (parsed.ok()) return ask(*parsed).dump();
  return reply_to([&](Output&) -> Result<ExitCode> { return parsed.error(); }).dump();
}

}  // namespace lockstep::cli
