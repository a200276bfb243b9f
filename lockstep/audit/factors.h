// Names of constant factors: which degree, count or ratio of a dump a number equals.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/audit/dump.h"

namespace lockstep::audit {

struct NamedFactor {
  double value = 1;
  std::string name;  // "the data-parallel degree, 4"
  bool inverse = false;
};

// Every name that fits `factor` within `tolerance`, relative; none for an unknown number.
std::vector<NamedFactor> names_of(const Dump& dump, double factor, double tolerance);

inline constexpr std::string_view kOrBy = "; or by ";

// "x 0.25: divided once too often by the data-parallel degree, 4; or by the samples of the batch,
// 4".
std::string in_words(double factor, const std::vector<NamedFactor>& names);

}  // namespace lockstep::audit
