#include "cli/parse.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "cli/habits.h"
#include "lockstep/base/check.h"
#include "lockstep/config/suggest.h"

namespace lockstep::cli {
namespace {

Result<void> in_range(const Option& option, double number, const std::string& text) {
  if (number >= option.min && number <= option.max && std::isfinite(number)) return {};
  std::string range;
  if (std::isfinite(option.min)) range = strf("at least %.15g", option.min);
  if (!std::isfinite(option.min) && !std::isfinite(option.max)) range = "within 64 bits";
  if (std::isfinite(option.max))
    range += strf("%sat most %.15g", range.empty() ? "" : " and ", option.max);
  return Error{Code::kBadOptionValue,
               join_parts("--", option.name, " must be ", range, ", not ", text),
               option.initial.empty() ? "" : join_parts("the default is ", option.initial)};
}

template <class Number>
Result<void> is_number(const Option& option, const std::string& text, const char* kind) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end)
    return in_range(option, static_cast<double>(number), text);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (parsed.ec == std::errc::result_out_of_range && parsed.ptr == end)
    return in_range(option, text.starts_with('-') ? -kInfinity : kInfinity, text);
  return Error{Code::kBadOptionValue,
               join_parts("--", option.name, " takes ", kind, ", not `", text, "`"),
               join_parts("write --", option.name, " ", option.value,
                          option.initial.empty() ? "" : ", for example ", option.initial)};
}

// "8k" as "8192", where the option takes suffixes.
Result<std::string> written_out(const Option& option, std::string text) {
  if (option.suffixes == Suffixes::kNone) return text;
  const Result<double> number = parse_amount(text, option.suffixes);
  if (!number.ok())
    return Error{Code::kBadOptionValue, join_parts("--", option.name, ": ", number.error().message),
                 number.error().help};
  const bool whole = *number == std::floor(*number) && std::abs(*number) < 0x1p53;
  return whole ? strf("%.0f", *number) : shortest(*number);
}

Result<void> check_value(const Option& option, const std::string& text) {
  switch (option.type) {
    case OptionType::kText:
      return {};
    case OptionType::kInt:
      return is_number<std::int64_t>(option, text, "a whole number");
    case OptionType::kReal:
      return is_number<double>(option, text, "a number");
    case OptionType::kBytes: {
      const Result<Bytes> bytes = parse_bytes(text);
      if (bytes.ok()) return in_range(option, static_cast<double>(bytes->value), text);
      return Error{Code::kBadOptionValue,
                   join_parts("--", option.name, ": ", bytes.error().message),
                   "write a size such as 1024 or 64MiB"};
    }
    case OptionType::kChoice:
      break;
  }
  if (std::ranges::find(option.choices, text) != option.choices.end()) return {};
  const std::string advice = config::did_you_mean(text, option.choices);
  return Error{Code::kBadOptionValue, join_parts("--", option.name, " has no choice `", text, "`"),
               join_parts(advice, advice.empty() ? "" : " ", "the choices are ",
                          config::listed(option.choices))};
}

std::vector<std::string> option_names(const Verb& verb) {
  std::vector<std::string> names;
  for (const Option& option : verb.options) names.push_back("--" + option.name);
  for (const Option& option : common_options()) names.push_back("--" + option.name);
  return names;
}

// Something on the command line that fits nowhere.
Error unexpected(const Verb& verb, const std::string& path, const std::string& word) {
  if (word.size() > 1 && word.starts_with('-')) {
    const std::string name = word.substr(0, word.find('='));
    const std::size_t dashes = name.find_first_not_of('-');
    const std::string full = "--" + (dashes == std::string::npos ? "" : name.substr(dashes));
    const std::string habit = instead_of_option(verb, full);
    return {Code::kUnknownOption, join_parts("`lockstep ", path, "` has no option `", name, "`"),
            habit.empty() ? config::did_you_mean(
                                full, option_names(verb),
                                join_parts("`lockstep ", path, " --help` lists what it takes"))
                          : habit};
  }
  return {Code::kUnknownOption,
          join_parts("`lockstep ", path, "` takes no further argument: `", word, "`"),
          join_parts("usage: ", usage(verb, path))};
}

// A word that begins with a dash and is no number.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '.' && (word[1] < '0' || word[1] > '9');
}

// Takes "--name", "--name=value", "--name value" or "-n value" at words[at]; leaves `at` on the
// last word used.
Result<void> take_option(const Verb& verb, const std::string& path,
                         const std::vector<std::string>& words, std::size_t& at, Given& given) {
  const std::string& word = words[at];
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  const auto option = std::ranges::find_if(verb.options, [&](const Option& candidate) {
    return "--" + candidate.name == name ||
           (candidate.letter != 0 && name == strf("-%c", candidate.letter));
  });
  if (option == verb.options.end()) return unexpected(verb, path, word);
  const bool attached = equals != std::string::npos;
  if (option->value.empty()) {
    if (attached)
      return Error{Code::kBadOptionValue, join_parts(name, " is a flag and takes no value"),
                   join_parts("write ", name, " alone")};
    given[option->name] = {"true"};
    return {};
  }
  if (!attached && !option->bare.empty())
    return given[option->name] = {option->bare}, Result<void>();
  const bool has_next = at + 1 < words.size() && !looks_like_option(words[at + 1]);
  if (!attached && !has_next)
    return Error{Code::kBadOptionValue, join_parts(name, " needs a value"),
                 join_parts("write ", name, " ", option->value)};
  given[option->name].push_back(attached ? word.substr(equals + 1) : words[++at]);
  return {};
}

Result<void> take_positional(const Verb& verb, const std::string& path, const std::string& word,
                             Given& given) {
  for (const Positional& positional : verb.positionals) {
    std::vector<std::string>& values = given[positional.name];
    if (!values.empty() && !positional.repeated) continue;
    values.push_back(word);
    return {};
  }
  return unexpected(verb, path, word);
}

Result<Given> sort_words(const Verb& verb, const std::string& path,
                         const std::vector<std::string>& words) {
  Given given;
  bool only_positionals = false;  // after "--"
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (!only_positionals && words[at] == "--") {
      only_positionals = true;
      continue;
    }
    const bool is_option = !only_positionals && looks_like_option(words[at]);
    LS_TRY(is_option ? take_option(verb, path, words, at, given)
                     : take_positional(verb, path, words[at], given));
  }
  return given;
}

Result<void> set_from(const Option& option, std::vector<std::string> given,
                      const EnvironmentLookup& lookup, Args& args) {
  if (option.value.empty()) return args.set(option.name, std::move(given)), Result<void>();
  if (given.size() > 1 && !option.repeated)
    return Error{Code::kBadOptionValue,
                 join_parts("--", option.name, " is given ", given.size(), " times"),
                 "give it once"};
  if (given.empty() && !option.env.empty())
    if (const auto text = lookup(option.env); text && !text->empty()) given = {*text};
  if (given.empty() && !option.initial.empty()) given = {option.initial};
  for (std::string& text : given) {
    text = LS_TRY(written_out(option, std::move(text)));
    LS_TRY(check_value(option, text));
  }
  args.set(option.name, std::move(given));
  return {};
}

// What stands for a key of a run file joins what --set names.
Result<void> join_settings(const Verb& verb, Args& args) {
  for (const Option& option : verb.options) {
    if (option.setting.empty() || !args.has(option.name)) continue;
    std::vector<std::string> settings = args.texts("set");
    for (const std::string& other : settings)
      if (other.starts_with(option.setting + "="))
        return Error{Code::kConflict,
                     join_parts("--", option.name, " ", args.text(option.name), " and --set ",
                                other, " both set ", option.setting),
                     "leave one of them out"};
    settings.push_back(option.setting + "=" + args.text(option.name));
    args.set("set", std::move(settings));
  }
  return {};
}

}  // namespace

std::vector<std::string> names_of(const std::vector<Verb>& verbs) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.name);
  return names;
}

std::vector<Option> common_options() {
  return grouped(
      {{"Options of every command",
        {flag("json", "Write one JSON object; errors too, on stderr"),
         choice("color", "WHEN", {"auto", "always", "never"}, "Colour: auto, always or never")
             .initially("auto")
             .from_variable("NO_COLOR, CLICOLOR_FORCE"),
         flag("help", "Show this help").short_name('h'),
         flag("version", "Show the version").short_name('V')}}});
}

void set_command_apart(const std::vector<Verb>& verbs, std::vector<std::string>& words) {
  const std::vector<Option> common = common_options();
  const Verb* verb = nullptr;
  for (std::size_t at = 0; at < words.size() && words[at] != "--"; ++at) {
    if (looks_like_option(words[at])) {
      for (const std::vector<Option>& options : {common, verb ? verb->options : common})
        if (const auto option = std::ranges::find(options, words[at].substr(2), &Option::name);
            option != options.end() && !option->value.empty() && option->bare.empty()) {
          ++at;
          break;
        }
      continue;
    }
    if (verb != nullptr)
      return void(words.insert(words.begin() + static_cast<std::ptrdiff_t>(at), "--"));
    const auto found = std::ranges::find(verbs, words[at], &Verb::name);
    if (found == verbs.end() || std::ranges::none_of(found->positionals, &Positional::is_command))
      return;
    verb = &*found;
  }
}

Common take_common(std::vector<std::string>& words) {
  Common common;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest.insert(rest.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    if (word == "--json") {
      common.json = true;
    } else if (word == "--help" || word == "-h") {
      common.help = true;
    } else if (word == "--version" || word == "-V") {
      common.version = true;
    } else if (word == "--color" || word.starts_with("--color=")) {
      const bool apart = word == "--color";
      const bool has_next = i + 1 < words.size() && !words[i + 1].starts_with('-');
      common.color = !apart ? word.substr(8) : has_next ? words[++i] : "";
    } else {
      rest.push_back(word);
    }
  }
  words = std::move(rest);
  return common;
}

Result<Found> find_verb(const std::vector<Verb>& verbs, std::vector<std::string>& words) {
  Found found;
  const std::vector<Verb>* level = &verbs;
  while (!words.empty() && !level->empty()) {
    const std::string& word = words.front();
    const auto match = std::ranges::find(*level, word, &Verb::name);
    if (match == level->end()) {
      if (word.starts_with('-') && found.verb == nullptr)
        return Error{Code::kUnknownOption, join_parts("no option `", word, "` before a command"),
                     "options come after the command: lockstep COMMAND [OPTIONS]"};
      if (word.starts_with('-')) break;
      const std::vector<std::string> names = names_of(*level);
      std::string advice = found.verb == nullptr ? instead_of_command(word) : "";
      if (advice.empty()) {
        advice = config::did_you_mean(word, names);
        advice += (advice.empty() ? "" : " ") + config::there_are(names);
      }
      return Error{Code::kUnknownCommand,
                   join_parts("no command `", found.path, found.path.empty() ? "" : " ", word, "`"),
                   std::move(advice)};
    }
    found.verb = &*match;
    found.path += (found.path.empty() ? "" : " ") + match->name;
    level = &match->verbs;
    words.erase(words.begin());
  }
  return found;
}

Result<Args> parse_args(const Verb& verb, const std::string& path,
                        const std::vector<std::string>& words, const EnvironmentLookup& lookup) {
  return check_args(verb, path, LS_TRY(sort_words(verb, path, words)), lookup);
}

Result<Args> check_args(const Verb& verb, const std::string& path, const Given& given,
                        const EnvironmentLookup& lookup) {
  const auto values_of = [&](const std::string& name) {
    const auto found = given.find(name);
    return found == given.end() ? std::vector<std::string>{} : found->second;
  };
  Args args;
  for (const Option& option : verb.options)
    LS_TRY(set_from(option, values_of(option.name), lookup, args));
  for (const Positional& positional : verb.positionals) {
    std::vector<std::string> values = values_of(positional.name);
    if (values.empty() && positional.required)
      return Error{Code::kBadOptionValue,
                   join_parts("`lockstep ", path, "` needs ", positional.name),
                   join_parts("usage: ", usage(verb, path))};
    args.set(positional.name, std::move(values));
  }
  LS_TRY(join_settings(verb, args));
  return args;
}

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string usage(const Verb& verb, const std::string& path) {
  std::string text = "lockstep " + path;
  if (!verb.verbs.empty()) text += " COMMAND";
  if (!verb.options.empty()) text += " [OPTIONS]";
  for (const Positional& positional : verb.positionals) {
    const std::string name = positional.name + (positional.repeated ? "..." : "");
    text += positional.required ? " " + name : " [" + name + "]";
  }
  return text;
}

}  // namespace lockstep::cli
