// What a step computes, as formulas, in two ways: from the model alone, and by running a program.
// Written from the meaning of the ops in program.h, without effects.h, so that neither can lend the
// other its mistakes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

using Formula = std::uint64_t;  // hash of an expression

struct Outcome {
  std::string fault;             // what kept the step from ending; empty when it did end
  std::vector<Formula> weights;  // per segment, after the step
  Formula norm = 0;              // with the loss
  bool operator==(const Outcome&) const = default;
};

// The step of the model, whoever runs what and when: gradients summed over microbatches in
// ascending order within a period, periods in ascending order, one update.
Outcome reference(const StepShape& step);

// Runs all lists together. An asynchronous op gives its result at its Wait and no earlier; what it
// works on must be the same then as when it was issued. A value that is used up is gone.
// REQUIRES: numbers in range.
Outcome interpret(const Program& program);

}  // namespace lockstep::program
