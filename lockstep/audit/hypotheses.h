// Whole gradients that a known fault would have made.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/audit/explain.h"

namespace lockstep::audit {

struct Hypothesis {
  std::string what;
  std::function<std::vector<double>(std::size_t tensor)> gradient;
  // How much larger its rounding is than the truth's.
  std::function<double(std::size_t tensor)> noise;
  std::string apart = {};  // Explanation::apart
};

// The truth first; none is proportional to it.
std::vector<Hypothesis> hypotheses(const Evidence& evidence);

}  // namespace lockstep::audit
