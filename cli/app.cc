#include "cli/app.h"

#include <algorithm>
#include <limits>
#include <ostream>
#include <utility>

#include "cli/engine.h"
#include "cli/help.h"
#include "cli/text_file.h"
#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"
#include "lockstep/launch/report.h"

namespace lockstep::cli {
namespace {

ExitCode show_version(Output& output) {
  if (output.json)
    return print_json(output, Json::object({{"schema", "lockstep.version/1"},
                                            {"version", version()},
                                            {"torch", LOCKSTEP_WITH_TORCH != 0}}));
  output.out << "lockstep " << version() << '\n';
  return ExitCode::kOk;
}

ExitCode show_help(const std::vector<Verb>& verbs, const Found& found, Output& output) {
  if (output.json)
    return print_json(output,
                      help_json(found.verb == nullptr ? verbs : std::vector<Verb>{*found.verb}));
  output.out << (found.verb == nullptr
                     ? main_help(verbs, output.width, output.colour)
                     : verb_help(*found.verb, found.path, output.width, output.colour));
  return ExitCode::kOk;
}

Result<ExitCode> help_on(const std::vector<Verb>& verbs, std::vector<std::string> words,
                         Output& output) {
  if (words == std::vector<std::string>{"help"}) words.clear();
  const Found found = LS_TRY(find_verb(verbs, words));
  if (!words.empty())
    return Error{Code::kUnknownOption,
                 join_parts("`help` takes the name of a command, not `", words.front(), "`"),
                 "usage: lockstep help [COMMAND]"};
  return show_help(verbs, found, output);
}

Result<void> check_colour(const std::string& choice) {
  const std::vector<std::string> choices = {"auto", "always", "never"};
  if (std::ranges::find(choices, choice) != choices.end()) return {};
  return Error{
      Code::kBadOptionValue,
      choice.empty() ? "--color needs a value" : join_parts("--color has no choice `", choice, "`"),
      join_parts("the choices are ", config::listed(choices))};
}

Result<ExitCode> dispatch(const std::vector<Verb>& verbs, std::vector<std::string> words,
                          const Common& common, const EnvironmentLookup& lookup, Output& output) {
  LS_TRY(check_colour(common.color));
  if (words.empty()) return common.version ? show_version(output) : show_help(verbs, {}, output);
  if (words.front() == "help") return words.erase(words.begin()), help_on(verbs, words, output);
  const Found found = LS_TRY(find_verb(verbs, words));
  const Verb& verb = *found.verb;
  if (common.help) return show_help(verbs, found, output);
  if (common.version) return show_version(output);
  if (!verb.verbs.empty())
    return Error{Code::kUnknownCommand, join_parts("`lockstep ", found.path, "` needs a command"),
                 config::there_are(names_of(verb.verbs))};
  const Args args = LS_TRY(parse_args(verb, found.path, words, lookup));
  if (verb.run != nullptr) return verb.run(args, output);
  const Engine* engine = LS_TRY(load_engine(join_parts("`lockstep ", found.path, "`")));
  return (engine->*verb.engine)(args, output);
}

constexpr int kNoWidth = std::numeric_limits<int>::max();  // of a pipe

// COLUMNS, else the terminal's own.
int columns_of(const Environment& environment) {
  const int columns = std::atoi(environment.lookup("COLUMNS").value_or("").c_str());
  return columns > 0 ? columns : environment.out_is_terminal ? environment.width : kNoWidth;
}

}  // namespace

bool use_colour(std::string_view choice, const EnvironmentLookup& lookup, bool is_terminal) {
  if (choice != "auto") return choice == "always";
  const auto get = [&](const char* name) { return lookup(name).value_or(""); };
  if (!get("NO_COLOR").empty()) return false;
  for (const char* name : {"CLICOLOR_FORCE", "FORCE_COLOR"})
    if (const std::string value = get(name); !value.empty() && value != "0") return true;
  return is_terminal && get("TERM") != "dumb";
}

ExitCode run_lockstep(const std::vector<Verb>& verbs, std::vector<std::string> words,
                      const Environment& environment, std::ostream& out, std::ostream& err) {
  set_command_apart(verbs, words);
  const Common common = take_common(words);
  const int columns = columns_of(environment);
  Output output{
      .out = out,
      .err = err,
      .json = common.json,
      .colour = use_colour(common.color, environment.lookup, environment.out_is_terminal),
      .err_colour = use_colour(common.color, environment.lookup, environment.err_is_terminal),
      .live = environment.err_is_terminal && environment.lookup("TERM").value_or("") != "dumb" &&
              !common.json,
      // Long lines are hard to read, so a wide window is not filled with text.
      .width = std::clamp(columns == kNoWidth ? environment.width : columns, 40, 100),
      .table_width = columns,
      .write = write_text,
      .tell = launch::report_error};
  const Result<ExitCode> ended =
      guarded([&] { return dispatch(verbs, words, common, environment.lookup, output); });
  const ExitCode code = ended.ok() ? *ended : fail(output, ended.error());
  out.flush();
  if (!out.good() && code == ExitCode::kOk)
    return fail(output, Error{Code::kUnsuitableEnvironment, "writing the output failed",
                              "is the disk full?"});
  return code;
}

}  // namespace lockstep::cli
