// Numbers that must not be mixed up, each its own type. The words are defined in
// docs/vocabulary.md.
#pragma once

#include <compare>
#include <cstdint>

namespace lockstep {

template <class Tag, class Rep = std::int32_t>
struct Id {
  Rep value = 0;
  auto operator<=>(const Id&) const = default;
};

using Rank = Id<struct RankTag>;              // process number in the world
using Coord = Id<struct CoordTag>;            // position along one axis
using Stage = Id<struct StageTag>;            // pipeline position over the whole model
using Chunk = Id<struct ChunkTag>;            // local index of a stage on its coordinate
using Microbatch = Id<struct MicrobatchTag>;  // unit through the pipeline

}  // namespace lockstep
