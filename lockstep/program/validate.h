// Whether a program is a correct step, as far as one can tell without running it and without
// looking at the order between coordinates, which is deadlock.h's.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/program/problem.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

// All problems of the shape, the transfers, the ops of each list and the values they use
// (list_checks.h), at most `limit`. Later checks are left out where earlier ones say that they
// would make no sense. Time is n log n in the number of ops.
std::vector<Problem> validate(const Program& program, std::size_t limit = 20);

}  // namespace lockstep::program
