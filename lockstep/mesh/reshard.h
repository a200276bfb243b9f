// What a rank must copy, and from whom, to hold a tensor under another layout, on the same mesh or
// on another. Found by intersecting boxes: the work grows with the pieces that meet, never with the
// number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/ids.h"
#include "lockstep/base/result.h"
#include "lockstep/mesh/layout.h"

namespace lockstep::mesh {

// `length` elements from element `source` of the owner's shard to element `target` of the target
// rank's shard. A shard's element 0 is Shard::begin of its local tensor.
struct Run {
  std::int64_t source = 0;
  std::int64_t target = 0;
  std::int64_t length = 0;
  bool operator==(const Run&) const = default;
};

struct Copy {
  Rank source;            // in the source layout's mesh
  std::vector<Run> runs;  // ascending in target; runs that could be one are one
  bool operator==(const Copy&) const = default;
};

// Which of several ranks with identical copies is read.
enum class Replica : std::uint8_t {
  kNearest,  // the target rank itself if it holds the piece, else spread by target rank number
  kFirst,    // the one with coordinate 0 along every replica axis: who writes a checkpoint
};

// The copies `target_rank` needs, one per owner, ascending in owner; together they cover every
// element of its shard exactly once. Refuses layouts of different global shapes.
Result<std::vector<Copy>> reshard(const Layout& source, const Layout& target, Rank target_rank,
                                  Replica replica = Replica::kNearest);

}  // namespace lockstep::mesh
