// Words for a program's ops: for people, and as tokens; and a program's hash.
//   F3.1 R3.1 B3.1 I3.1 W3.1      unit 3, microbatch 1
//   load1 count                   microbatch 1
//   send4 recv4                   transfer 4
//   gather3 free3 update3 allgather3
//   reduce3.0 across3.0           unit 3, period 0
//   replicated3                   unit 3
//   gather3e reduce3e.0           its experts
//   tied norm
//   wait@17                       for op 17 of the same list, counted from 0
// A group follows only where it is not the usual one of the kind, `norm:self`, and a number that
// the kind does not use only where it is not -1, `F3.1+period=2`.
#pragma once

#include <string>

#include "lockstep/base/hash.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

std::string op_token(const StepShape& step, const Op& op);  // "gather3", "norm:self"

// "F of unit 3, microbatch 1", "wait for gather of unit 3". Never fails, whatever the op's numbers.
std::string op_text(const Program& program, Coord coord, const Op& op);
std::string transfer_text(const Transfer& transfer);  // "output of unit 3, microbatch 1"

// Equal programs have equal hashes on every machine; any difference shows.
Hash128 program_hash(const Program& program);

}  // namespace lockstep::program
