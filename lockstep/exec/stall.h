// Why a job stands still, told from its program: which rank waits for whom and what for, down to
// the rank that waits for nobody. A pure function of where the ranks were last seen.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/comm/position.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/program/program.h"

namespace lockstep::exec {

// One rank's part in a stall.
struct RankStatus {
  Rank rank = {};
  std::int32_t op = -1;  // of its list, where it stands; -1: before the first or between steps
  std::vector<Rank> waits_for = {};  // those that have not come to what it waits for
  // "waits for the gradient of unit 7, microbatch 2, from rank 4, which has not started I of unit
  // 8, microbatch 2", or, of one that waits for nobody, "is in F of unit 3, microbatch 0".
  std::string what = {};
};

struct StallReport {
  std::vector<RankStatus> ranks;  // by rank
  // Ranks that wait for nobody and that others wait for, directly or not; the one that holds up
  // most first. Several where an operation that all members take part in does not end.
  std::vector<Rank> culprits;

  // From `rank` to a culprit: "rank 2 waits for ...; rank 3 waits for ...; rank 4 is in ...".
  std::string chain(Rank rank) const;
  // One line for each rank, alike ones together.
  std::string table() const;
  // The chain from `rank`, a line for each link; then one line for each other rank, as in table().
  std::string describe_from(Rank rank) const;
};

// What meets others as part `part` of a computation, as "the all_reduce of middle", and along which
// axis.
struct PartMeeting {
  std::string text;
  mesh::Axis axis = mesh::Axis::kTensor;
};
using PartText = std::function<PartMeeting(const program::Op& op, int part)>;

// Positions are of the program's lists; a rank never seen has not begun, nor one at a position that
// its list does not have. Time has passed since all positions last changed, so that a rank which
// could go on has gone on. REQUIRES: one sighting per rank of the mesh.
StallReport explain_stall(const program::Program& program, const mesh::Mesh& mesh,
                          std::span<const comm::LastSeen> seen, const PartText& part_text = {});

}  // namespace lockstep::exec
