// Help pages, from the same table the parser reads: examples first, options grouped, defaults and
// environment variables shown.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"

namespace lockstep::cli {

std::string version();  // "0.1.0"

// The page of `lockstep` itself.
std::string main_help(const std::vector<Verb>& verbs, int width, bool colour);
// The page of one verb; `path` is how it is called: "config check".
std::string verb_help(const Verb& verb, const std::string& path, int width, bool colour);

// The same tables for programs.
Json help_json(const std::vector<Verb>& verbs);

}  // namespace lockstep::cli
