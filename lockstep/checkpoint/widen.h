// Floating-point elements as wider ones, which hold every value exactly.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/base/dtype.h"

namespace lockstep::checkpoint {

bool widens(DType from, DType to);  // also to itself

// REQUIRES: widens(from, to), as many elements in both, which do not overlap. At any alignment.
void widen(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> target);

}  // namespace lockstep::checkpoint
