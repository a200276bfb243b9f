// From words to a verb and its checked arguments. Written by hand because the table of verb.h
// already says everything a parser needs, and what is left is sorting words: CLI11 tried in its
// place cost 9 s of compilation and still had to be searched for the texts of its exceptions to say
// which argument was wrong.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

using EnvironmentLookup = std::function<std::optional<std::string>(const std::string&)>;

// Puts "--" in front of the words that are another command's (Positional::is_command), so that
// nobody takes its options for his own.
void set_command_apart(const std::vector<Verb>& verbs, std::vector<std::string>& words);

// What every command takes.
struct Common {
  bool json = false;
  bool help = false;
  bool version = false;
  std::string color = "auto";
};

// The options of Common as a table, for help.
std::vector<Option> common_options();

// Takes the common options out of `words`, wherever they stand (but not after "--"), so that even a
// wrong command line is answered in the asked-for form.
Common take_common(std::vector<std::string>& words);

// The verb that the leading words name ("config check"), those words removed; `path` is their
// spelling. A group without its verb is the group itself; no word at all is nullptr.
// kUnknownCommand for a word that names nothing.
struct Found {
  const Verb* verb = nullptr;
  std::string path;  // "config check"
};
Result<Found> find_verb(const std::vector<Verb>& verbs, std::vector<std::string>& words);

std::vector<std::string> names_of(const std::vector<Verb>& verbs);

// The arguments of one verb. `path` is used in messages.
Result<Args> parse_args(const Verb& verb, const std::string& path,
                        const std::vector<std::string>& words, const EnvironmentLookup& lookup);

// The same from values that are sorted already, those of an option or argument by its name, of a
// flag "true".
using Given = std::map<std::string, std::vector<std::string>, std::less<>>;
Result<Args> check_args(const Verb& verb, const std::string& path, const Given& given,
                        const EnvironmentLookup& lookup);

// A word as a shell reads it back.
std::string shell_word(const std::string& word);

// "lockstep config check [--set KEY=VALUE] FILE".
std::string usage(const Verb& verb, const std::string& path);

}  // namespace lockstep::cli
