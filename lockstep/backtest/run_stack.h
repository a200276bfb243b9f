// What a published run says of its software, and what is known of that software: which kernels it
// fuses, what it overlaps, what it keeps. Rules look at the row's description alone, never at what
// was measured.
#pragma once

#include "lockstep/backtest/run_table.h"
#include "lockstep/cost/analytic/stacks.h"

namespace lockstep::backtest {

using cost::kFittedHabits;
using cost::StackClass;
using cost::StackHabits;

StackClass stack_class_of(const PublishedRun& run, int zero);

// Everything but the habits.
cost::Stack stack_of(const PublishedRun& run, int zero);

bool is_torchtitan(const PublishedRun& run);
bool is_nanotron(const PublishedRun& run);

// Whether the column holds the words as they stand.
bool says(const PublishedRun& run, std::string_view column, std::string_view words);

}  // namespace lockstep::backtest
