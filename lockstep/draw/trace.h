// A figure in Chrome's trace event format, which Perfetto and chrome://tracing read.
//
// A process per pipeline rank, a thread per lane, a complete event per bar with its stage, unit,
// microbatch and chunk, and a counter for memory. Times are rounded to nanoseconds, so neighbours
// never overlap. An abstract unit of time is shown as one millisecond; `otherData` says so.
#pragma once

#include <span>
#include <string>

#include "lockstep/draw/figure.h"

namespace lockstep::draw {

std::string trace(const Figure& figure);

// Several in one file, such as what was predicted and what was measured: their processes carry the
// title of their figure and stand in the order of the figures. REQUIRES: at least one.
std::string trace(std::span<const Figure> figures);

}  // namespace lockstep::draw
