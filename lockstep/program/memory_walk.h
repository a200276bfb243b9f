// Live bytes of one pipeline rank after every op, by walking its effects with the sizes of values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/program/effects.h"
#include "lockstep/program/program.h"

namespace lockstep::program {

inline constexpr int kNumValueKinds = 19;

// Bytes of one unit's values on one rank, or of the state of its experts (of one microbatch where a
// value has one), and, for each kind of compute, its surge: the largest number of live bytes at any
// moment inside the op minus those live before it. What the op defines counts from the moment it
// exists, what it kills until it is gone; so a surge is at least the op's net growth.
struct UnitBytes {
  std::int64_t act = 0;  // the output; its gradient and transfer buffers are as large
  std::int64_t checkpoint = 0;
  std::int64_t stash = 0;
  std::int64_t weight_work = 0;
  std::int64_t param = 0;
  std::int64_t param_shard = 0;
  std::int64_t main_grad = 0;
  std::int64_t grad_shard = 0;
  std::int64_t optimizer = 0;

  std::int64_t forward = 0;  // surges from here on
  std::int64_t recompute = 0;
  std::int64_t backward = 0;
  std::int64_t input_grad = 0;
  std::int64_t weight_grad = 0;
  std::int64_t first_backward = 0;  // these two where they define kMainGrad, which is in them
  std::int64_t first_weight_grad = 0;
  std::int64_t update = 0;
  std::int64_t noise = 0;  // at the end of an op that changes kNoise, above what lives after it
};

struct ProgramBytes {
  std::vector<UnitBytes> units;         // by segment
  std::vector<std::int64_t> tokens;     // per pipeline rank: one microbatch
  std::vector<std::int64_t> constants;  // per pipeline rank: always live, outside the program
  // By unit and microbatch, in place of `units`: where bytes depend on the rows that its experts
  // met.
  std::map<std::pair<int, int>, UnitBytes> of_microbatch = {};

  const UnitBytes& of(int segment, int microbatch) const {
    const auto found = of_microbatch.find({segment, microbatch});
    return found == of_microbatch.end() ? units[segment] : found->second;
  }
};

struct MemoryWalk {
  std::int64_t before = 0;         // live before the first op, constants included
  std::vector<std::int64_t> live;  // after each op, constants included
  std::int64_t peak = 0;           // largest of all moments, those inside ops included
  std::int32_t peak_op = -1;       // first op during or after which it is reached; -1: before all
  // What the peak is made of; the sum of all is `peak`.
  std::array<std::int64_t, kNumValueKinds> by_kind = {};  // indexed by ValueKind
  std::int64_t constants = 0;
  std::int64_t surge = 0;  // inside peak_op, above what was live before it; 0: the peak is after it
};

std::int64_t value_bytes(const Program& program, Coord coord, const ProgramBytes& bytes,
                         const Value& value);

// REQUIRES: a valid program, sizes for all its units and pipeline ranks.
MemoryWalk walk(const Program& program, Coord coord, const ProgramBytes& bytes);

}  // namespace lockstep::program
