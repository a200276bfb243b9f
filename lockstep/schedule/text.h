// A program as text that reads back exactly, words for people, and its hash.
//
// The text is a header with the shape of the step, one line per transfer (or `transfers usual` when
// they are those the shape implies), and one line of ops per coordinate:
//   F3.1 R3.1 B3.1 I3.1 W3.1      unit 3, microbatch 1
//   load1 count                   microbatch 1
//   send4 recv4                   transfer 4
//   gather3 free3 update3 publish3
//   reduce3.0 across3.0           unit 3, period 0
//   replicated3                   unit 3
//   tied norm
//   wait@17                       for op 17 of the same line, counted from 0
// A reach follows only where it is not the usual one of the kind, `norm:self`, and a number that the
// kind does not use only where it is not -1, `F3.1+period=2`.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"
#include "lockstep/schedule/program.h"

namespace lockstep::schedule {

// REQUIRES: a sound shape (inventory.h).
std::string to_text(const Program& program);

// The inverse. An error has code kSyntax and names line and token. What it returns has a sound shape
// but need not be valid (validate.h).
Result<Program> parse_program(std::string_view text);

std::string op_token(const StepShape& step, const Op& op);  // "gather3", "norm:self"

// "F of unit 3, microbatch 1", "wait for gather of unit 3". Never fails, whatever the op's numbers.
std::string op_text(const Program& program, Coord coord, const Op& op);
std::string transfer_text(const Transfer& transfer);  // "output of unit 3, microbatch 1"

// Equal programs have equal hashes on every machine; any difference shows.
Hash128 program_hash(const Program& program);

}  // namespace lockstep::schedule
