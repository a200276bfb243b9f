// Programs with one fault each, made from a good one: the sample by which checks of programs are
// judged. Each mutant differs from the original and from every other; their order is always the
// same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/program/program.h"

namespace lockstep::program {

enum class MutantKind : std::uint8_t {
  kDrop,      // an op is left out, with its Wait
  kDropWait,  // a Wait is left out
  kDouble,    // an op happens twice in a row, with a Wait each
  kGroup,     // an op meets other ranks
  kOrder,     // an op changes places with the next one of its kind, of its kind and unit, or its
  // neighbour on the same lane; a transfer also with the next one in the other direction
  kEarly,   // an op moves before the last one that touches what it needs
  kLate,    // an op moves behind the next one that needs what it touches
  kKeep,    // a Free and the next Gather of its unit are left out, so that the weights stay
  kNumber,  // an op has the unit, microbatch, period or transfer of the next one of its kind
};
inline constexpr int kNumMutantKinds = 9;

std::string_view to_text(MutantKind kind);  // "drop wait"

struct Mutant {
  MutantKind kind = MutantKind::kDrop;
  Coord coord;
  std::int32_t op = 0;  // the op at fault, its index in the original list
  std::string what;     // "coordinate 0, op 12, gather of unit 3: early"
  Program program;
};

// Faults of every op; a group is every other one, where the op has any, those of the tensor group
// only in steps that have one. Waits follow the ops they wait for. Takes memory quadratic in the
// size of the program.
// REQUIRES: a valid program.
std::vector<Mutant> mutants(const Program& program);

std::array<int, kNumMutantKinds> count_by_kind(std::span<const Mutant> mutants);

}  // namespace lockstep::program
