#include "cli/app.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <ostream>
#include <utility>

#include "cli/engine.h"
#include "cli/help.h"
#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cli {
namespace {

ExitCode show_version(Output& output) {
  if (output.json)
    print_json(output, Json::object({{"schema", "lockstep.version/1"},
                                     {"version", version()},
                                     {"torch", LOCKSTEP_WITH_TORCH != 0}}));
  else
    output.out << "lockstep " << version() << '\n';
  return ExitCode::kOk;
}

ExitCode show_help(const std::vector<Verb>& verbs, const Found& found, Output& output) {
  if (output.json)
    print_json(output, help_json(found.verb == nullptr ? verbs : std::vector<Verb>{*found.verb}));
  else if (found.verb == nullptr)
    output.out << main_help(verbs, output.width, output.colour);
  else
    output.out << verb_help(*found.verb, found.path, output.width, output.colour);
  return ExitCode::kOk;
}

ExitCode help_on(const std::vector<Verb>& verbs, std::vector<std::string> words, Output& output) {
  if (words == std::vector<std::string>{"help"}) words.clear();
  const Result<Found> found = find_verb(verbs, words);
  if (!found.ok()) return fail(output, found.error());
  if (!words.empty())
    return fail(output,
                Error{Code::kUnknownOption,
                      join_parts("`help` takes the name of a command, not `", words.front(), "`"),
                      "usage: lockstep help [COMMAND]"});
  return show_help(verbs, *found, output);
}

ExitCode dispatch(const std::vector<Verb>& verbs, std::vector<std::string> words,
                  const Common& common, const EnvironmentLookup& lookup, Output& output) {
  if (words.empty()) return common.version ? show_version(output) : show_help(verbs, {}, output);
  if (words.front() == "help") return words.erase(words.begin()), help_on(verbs, words, output);
  const Result<Found> found = find_verb(verbs, words);
  if (!found.ok()) return fail(output, found.error());
  const Verb& verb = *found->verb;
  if (common.help) return show_help(verbs, *found, output);
  if (common.version) return show_version(output);
  if (!verb.verbs.empty()) {
    std::vector<std::string> names;
    for (const Verb& inner : verb.verbs) names.push_back(inner.name);
    return fail(output, Error{Code::kUnknownCommand,
                              join_parts("`lockstep ", found->path, "` needs a command"),
                              config::there_are(names)});
  }
  const Result<Args> args = parse_args(verb, found->path, words, lookup);
  if (!args.ok()) return fail(output, args.error());
  if (verb.run != nullptr) return verb.run(*args, output);
  const auto engine = load_engine(join_parts("`lockstep ", found->path, "`"));
  if (!engine.ok()) return fail(output, engine.error());
  return ((*engine)->*verb.engine)(*args, output);
}

ExitCode bug(Output& output, const char* what) {
  return fail(output, Error{Code::kBug, what,
                            "this is a bug in Lockstep; please report it with the command line"});
}

ExitCode guarded(const std::vector<Verb>& verbs, std::vector<std::string> words,
                 const Common& common, const EnvironmentLookup& lookup, Output& output) {
  try {
    return dispatch(verbs, std::move(words), common, lookup, output);
  } catch (const WorldError& error) {
    return fail(output, error.error());
  } catch (const std::bad_alloc&) {
    return fail(output, Error{Code::kUnsuitableEnvironment, "out of memory", ""});
  } catch (const std::exception& error) {
    return bug(output, error.what());
  } catch (...) {
    return bug(output, "an exception of unknown type");
  }
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
      .table_width = columns};
  const std::vector<std::string> choices = {"auto", "always", "never"};
  if (common.color.empty())
    return fail(output, Error{Code::kBadOptionValue, "--color needs a value",
                              join_parts("the choices are ", config::listed(choices))});
  if (std::ranges::find(choices, common.color) == choices.end())
    return fail(output, Error{Code::kBadOptionValue,
                              join_parts("--color has no choice `", common.color, "`"),
                              join_parts("the choices are ", config::listed(choices))});
  const ExitCode code = guarded(verbs, std::move(words), common, environment.lookup, output);
  out.flush();
  if (!out.good() && code == ExitCode::kOk)
    return fail(output, Error{Code::kUnsuitableEnvironment, "writing the output failed",
                              "is the disk full?"});
  return code;
}

}  // namespace lockstep::cli
