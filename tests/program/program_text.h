// A program as text that reads back exactly: a header with the shape of the step, one line per
// transfer (or `transfers usual` when they are those the shape implies), and one line of ops per
// coordinate, as op_token (lockstep/program/text.h) writes them.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// REQUIRES: a sound shape (inventory.h).
std::string to_text(const Program& program);

// The inverse. An error has code kSyntax and names line and token. What it returns has a sound
// shape but need not be valid (validate.h).
Result<Program> parse_program(std::string_view text);

}  // namespace lockstep::program
