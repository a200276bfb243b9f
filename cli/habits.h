// What people type who come from other programs, and what to type here instead.
#pragma once

#include <string>
#include <string_view>

#include "cli/verb.h"

namespace lockstep::cli {

// "`lockstep train FILE --save DIR --resume`" for the command `resume`; empty where none is known.
std::string instead_of_command(std::string_view word);

// For an option, with its dashes, that `verb` does not have: by its own list, or, where the verb
// reads a run file, by the names that keys have elsewhere. Empty where none is known.
std::string instead_of_option(const Verb& verb, std::string_view name);

}  // namespace lockstep::cli
