// What every benchmark reports, because single timings of a shared machine say little.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

// The upper one of an even number. REQUIRES: not empty.
inline double median(std::vector<double> values) {
  const auto middle = static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, values.begin() + middle);
  return values[values.size() / 2];
}

}  // namespace lockstep
