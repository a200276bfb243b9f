// The whole program, apart from the process around it: words in, exit code out.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "cli/parse.h"
#include "cli/verb.h"

namespace lockstep::cli {

struct Environment {
  EnvironmentLookup lookup;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int width = 80;  // columns of the terminal; in a pipe, of text
};

// --color beats NO_COLOR (non-empty: off) beats CLICOLOR_FORCE and FORCE_COLOR (non-empty and not
// 0: on) beats whether the stream is a terminal that is not "dumb".
bool use_colour(std::string_view choice, const EnvironmentLookup& lookup, bool is_terminal);

// Runs one command line. Never throws: an exception that nobody expected is reported as a bug.
ExitCode run_lockstep(const std::vector<Verb>& verbs, std::vector<std::string> words,
                      const Environment& environment, std::ostream& out, std::ostream& err);

}  // namespace lockstep::cli
