// The contract of communicator.h as a program that every rank of a world runs, whatever the
// backend: threads of one process or processes of one machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::contract {

struct Report {
  std::int64_t cases = 0;
  std::vector<std::string> failures;
};

struct Extent {
  std::int64_t largest_bytes = 64 << 20;
};

// All operations x f32 f64 bf16 i64 bytes x sizes 0, 1, odd, 1 KiB and the largest, in place and
// not, ledger included; both directions of send and recv at once; uneven all_to_all; operations in
// flight together; and, on 8 ranks, the sub-groups of a 2x2x2 mesh, connected by their members
// only.
Report run(World& world, Extent extent = {});

}  // namespace lockstep::comm::contract
