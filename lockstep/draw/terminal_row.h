// One row of a terminal drawing: the bars of a lane on so many columns.
#pragma once

#include <span>
#include <string>

#include "lockstep/draw/runs.h"

namespace lockstep::draw {

// ASCII alone: letter, number, then a filling of its own for each ink; dots are idle.
std::string plain_row(std::span<const Run> runs, Seconds span, int columns);

// Background colours, edges to an eighth of a column. Ends with colours reset.
std::string coloured_row(std::span<const Run> runs, Seconds span, int columns);
// Half as high, without numbers.
std::string coloured_thin_row(std::span<const Run> runs, Seconds span, int columns);

// Samples for a legend, two columns wide.
std::string plain_sample(Ink ink);
std::string coloured_sample(Ink ink, int chunk);
std::string idle_sample(bool colour);

}  // namespace lockstep::draw
