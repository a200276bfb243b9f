// The table of commands, as shells and man read it. Whatever help knows is in there: names,
// summaries, options with their choices, and the keys that --set takes.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

// Each defines completion for the command `lockstep`. Where nothing is known of a word, shells
// offer files.
std::string bash_completion(const std::vector<Verb>& verbs);
std::string zsh_completion(const std::vector<Verb>& verbs);
std::string fish_completion(const std::vector<Verb>& verbs);

// lockstep(1), in the macros of man(7).
std::string manual_page(const std::vector<Verb>& verbs);

}  // namespace lockstep::cli
