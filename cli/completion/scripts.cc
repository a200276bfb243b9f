#include "cli/completion/scripts.h"

#include <string_view>

#include "cli/parse.h"
#include "lockstep/spec/spec.h"

namespace lockstep::cli {
namespace {

// A command with the words that lead to it: "config check"; of the program itself none.
struct Node {
  std::string path;
  const Verb* verb = nullptr;  // null: the program
  const std::vector<Verb>* verbs = nullptr;
};

void add_below(const Node& node, std::vector<Node>& all) {
  all.push_back(node);
  for (const Verb& verb : *node.verbs)
    add_below({node.path.empty() ? verb.name : node.path + " " + verb.name, &verb, &verb.verbs},
              all);
}

std::vector<Node> nodes(const std::vector<Verb>& verbs) {
  std::vector<Node> all;
  add_below({"", nullptr, &verbs}, all);
  return all;
}

std::vector<Option> options_of(const Node& node) {
  std::vector<Option> all = common_options();
  if (node.verb != nullptr)
    all.insert(all.begin(), node.verb->options.begin(), node.verb->options.end());
  return all;
}

std::string keys() {
  std::string text;
  for (const config::Field& field : spec::run_fields().fields())
    text += (text.empty() ? "" : " ") + field.path + "=";
  return text;
}

// The words that may follow an option; empty: anything may.
std::string values_of(const Option& option) {
  const config::Field* field =
      option.setting.empty() ? nullptr : spec::run_fields().find(option.setting);
  std::string text;
  for (const std::string& choice : field != nullptr ? field->choices : option.choices)
    text += (text.empty() ? "" : " ") + choice;
  return text;
}

// `text` with a backslash in front of each of `marks`.
std::string escaped(std::string_view text, std::string_view marks) {
  std::string result;
  for (const char c : text) {
    if (marks.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// In single quotes of a POSIX shell.
std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
  return result + "'";
}

// A loop over the words in front of the cursor that leaves the command they name in `at`. Both
// shells read it.
std::string walk(const std::vector<Node>& all, std::string_view words) {
  std::string text = "  local at= word\n";
  text += join_parts("  for word in ", words, "; do\n    case \"$at $word\" in\n      ");
  bool first = true;
  for (const Node& node : all) {
    if (node.verb == nullptr) continue;
    const std::size_t space = node.path.rfind(' ');
    const std::string lead = space == std::string::npos ? "" : node.path.substr(0, space);
    text += join_parts(first ? "" : " | ", "\"", lead, " ", node.verb->name, "\"");
    first = false;
  }
  return text + ") at=${at:+$at }$word ;;\n    esac\n  done\n";
}

}  // namespace

std::string bash_completion(const std::vector<Verb>& verbs) {
  const std::vector<Node> all = nodes(verbs);
  std::string text =
      "_lockstep() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words=\n" +
      walk(all, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"") +
      "  if [[ $prev == --set ]]; then\n    compopt -o nospace\n    COMPREPLY=($(compgen -W \"" +
      keys() + "\" -- \"$cur\"))\n    return\n  fi\n  case \"$at $prev\" in\n";
  for (const Node& node : all)
    for (const Option& option : options_of(node))
      if (const std::string values = values_of(option); !values.empty())
        text +=
            join_parts("    \"", node.path, " --", option.name, "\") words=\"", values, "\" ;;\n");
  text += "    *)\n      case $at in\n";
  for (const Node& node : all) {
    std::string words;
    for (const Verb& verb : *node.verbs) words += verb.name + " ";
    for (const Option& option : options_of(node)) words += "--" + option.name + " ";
    words.pop_back();
    text += join_parts("        \"", node.path, "\") words=\"", words, "\" ;;\n");
  }
  return text +
         "      esac ;;\n  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
         "complete -o bashdefault -o default -F _lockstep lockstep\n";
}

std::string zsh_completion(const std::vector<Verb>& verbs) {
  const std::vector<Node> all = nodes(verbs);
  const auto row = [](const std::string& name, const std::string& help) {
    return " " + quoted(escaped(name, ":\\") + ":" + help);
  };
  std::string text = "#compdef lockstep\n_lockstep() {\n  local -a commands options\n" +
                     walk(all, "${words[2,CURRENT-1]}") +
                     "  case \"$at ${words[CURRENT-1]}\" in\n"
                     "    *\" --set\") compadd -S '' -- " +
                     keys() + "; return ;;\n";
  for (const Node& node : all)
    for (const Option& option : options_of(node))
      if (const std::string values = values_of(option); !values.empty())
        text += join_parts("    \"", node.path, " --", option.name, "\") compadd -- ", values,
                           "; return ;;\n");
  text += "  esac\n  case $at in\n";
  for (const Node& node : all) {
    text += join_parts("    \"", node.path, "\")\n      commands=(");
    for (const Verb& verb : *node.verbs) text += row(verb.name, verb.summary);
    text += ")\n      options=(";
    for (const Option& option : options_of(node)) text += row("--" + option.name, option.help);
    text += ") ;;\n";
  }
  return text +
         "  esac\n"
         "  (( ${#commands} )) && _describe command commands\n"
         "  [[ ${words[CURRENT]} == -* ]] && _describe -o option options && return\n"
         "  (( ${#commands} )) || _files\n}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _lockstep \"$@\"; else compdef "
         "_lockstep lockstep; fi\n";
}

std::string fish_completion(const std::vector<Verb>& verbs) {
  const auto quoted_for_fish = [](std::string_view text) {
    return "'" + escaped(text, "'\\") + "'";
  };
  std::string text;
  for (const Node& node : nodes(verbs)) {
    // That every word of its path was seen, and none of a command below it.
    std::string seen;
    std::string rest = node.path;
    while (!rest.empty()) {
      const std::string word = rest.substr(0, rest.find(' '));
      rest = word.size() == rest.size() ? "" : rest.substr(word.size() + 1);
      seen += join_parts(seen.empty() ? "" : "; and ", "__fish_seen_subcommand_from ", word);
    }
    std::string none_below = seen;
    if (!node.verbs->empty()) {
      none_below += join_parts(seen.empty() ? "" : "; and ", "not __fish_seen_subcommand_from");
      for (const Verb& verb : *node.verbs) none_below += " " + verb.name;
    }
    for (const Verb& verb : *node.verbs)
      text += join_parts("complete -c lockstep -f -n ", quoted_for_fish(none_below), " -a ",
                         verb.name, " -d ", quoted_for_fish(verb.summary), "\n");
    const std::vector<Option> options =
        node.verb == nullptr ? common_options() : node.verb->options;
    for (const Option& option : options) {
      text += "complete -c lockstep";
      if (!seen.empty()) text += " -n " + quoted_for_fish(none_below);
      text += " -l " + option.name;
      if (option.letter != 0) text += strf(" -s %c", option.letter);
      const std::string values = option.name == "set" ? keys() : values_of(option);
      if (!values.empty())
        text += " -xa " + quoted_for_fish(values);
      else if (!option.value.empty() && option.bare.empty())
        text += " -r";
      text += " -d " + quoted_for_fish(option.help) + "\n";
    }
  }
  return text;
}

namespace {

// Text of a manual page: a line that begins with a control character, and hyphens, stand for
// themselves.
std::string roff(std::string_view text) {
  std::string result = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) result += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return result;
}

std::string option_rows(const std::vector<Option>& options) {
  std::string text;
  for (const Option& option : options) {
    text += ".TP\n\\fB";
    if (option.letter != 0) text += strf("\\-%c\\fR, \\fB", option.letter);
    text += roff("--" + option.name) + "\\fR";
    if (!option.value.empty())
      text += join_parts(option.bare.empty() ? " " : "=", "\\fI", roff(option.value), "\\fR");
    text += "\n" + roff(option.help);
    if (!option.initial.empty()) text += " [default: " + roff(option.initial) + "]";
    text += "\n";
  }
  return text;
}

std::string command_section(const Node& node) {
  const Verb& verb = *node.verb;
  std::string text =
      join_parts(".SS ", roff(usage(verb, node.path)), "\n", roff(verb.summary), ".\n");
  if (!verb.description.empty()) text += ".PP\n" + roff(verb.description) + "\n";
  for (const Positional& positional : verb.positionals)
    text += join_parts(".TP\n\\fI", roff(positional.name), "\\fR\n", roff(positional.help), "\n");
  text += option_rows(verb.options);
  for (const Example& example : verb.examples)
    text += join_parts(".PP\n", roff(example.what), ":\n.PP\n.RS 4\n.EX\n", roff(example.command),
                       "\n.EE\n.RE\n");
  return text;
}

}  // namespace

std::string manual_page(const std::vector<Verb>& verbs) {
  std::string text =
      ".TH LOCKSTEP 1 \"\" \"lockstep " LOCKSTEP_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nlockstep \\- trains large language models across many devices\n"
      ".SH SYNOPSIS\n.B lockstep\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIARGUMENTS\\fR]\n"
      ".SH COMMANDS\n";
  for (const Node& node : nodes(verbs))
    if (node.verb != nullptr) text += command_section(node);
  return text + ".SH OPTIONS OF EVERY COMMAND\n" + option_rows(common_options()) +
         ".SH EXIT STATUS\n0: fine; 1: a check failed; 2: usage or configuration; 3: environment; "
         "4: a run failed; 70: a bug of lockstep; 143: stopped by a signal after a complete "
         "step.\n";
}

}  // namespace lockstep::cli
