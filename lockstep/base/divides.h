// Whether one whole number divides another, where both are held as reals: prices ask it for every
// layout, and std::fmod costs tens of times as much.
#pragma once

#include <cmath>

namespace lockstep {

// REQUIRES: part > 0; both below 2^52, so that a quotient that is no whole number does not round to
// one.
inline bool divides(double part, double whole) {
  const double quotient = whole / part;
  return quotient == std::floor(quotient);
}

}  // namespace lockstep
