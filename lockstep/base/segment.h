// Segments: what is gathered, sharded, reduced and updated as one buffer. The weights of a unit's
// routed experts are one, because other ranks hold them than the unit's other parameters, which are
// another. Numbers of the latter are those of their units; behind all of these come the experts.
#pragma once

namespace lockstep {

constexpr int experts_of(int unit, int units) { return units + unit; }
constexpr bool is_experts(int segment, int units) { return segment >= units; }
constexpr int unit_of(int segment, int units) {
  return is_experts(segment, units) ? segment - units : segment;
}

}  // namespace lockstep
