// How the parameters of one unit lie in one flat buffer: the grain of ZeRO's gathers and shards, of
// gradient reduction and of the optimizer. Parameters, gradients and moments all lie alike.
//
//   - Parameters that decay come first, in the order of the unit, then those that do not: an
//     optimizer needs two runs.
//   - Query, key and value are adjacent, and so are gate and up, so that one matrix product serves
//     them. Every other parameter starts at a multiple of 32 elements: 64 bytes in bf16 and more in
//     wider types.
//   - A buffer shared by n ranks is padded to a multiple of 256 n elements, so that no shard boundary
//     cuts a tile of 256 (the grain of exact sums) or leaves a ragged vector tail.
//   - Where things lie does not depend on n. Gaps and padding hold zeros.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/arch/arch.h"

namespace lockstep::arch {

inline constexpr std::int64_t kFlatAlign = 32;
inline constexpr std::int64_t kTile = 256;

struct FlatParam {
  int param = 0;  // index into Unit::params
  std::int64_t offset = 0;
  std::int64_t numel = 0;
  std::int64_t end() const { return offset + numel; }
  bool operator==(const FlatParam&) const = default;
};

struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

struct FlatLayout {
  std::vector<FlatParam> params;  // in buffer order
  std::int64_t size = 0;          // elements before padding for shards, a multiple of kFlatAlign
  std::int64_t decay_end = 0;     // decaying parameters lie in [0, decay_end)
  FlatRange tied;                 // the weight that embedding and head share, at the same place in
                                  // both; empty when nothing is tied
  bool tied_copy = false;         // this unit holds the second copy (the head): not counted again

  std::int64_t padded(std::int64_t shards) const;
  FlatRange shard(std::int64_t shards, std::int64_t index) const;  // of padded(shards)
  const FlatParam& of(int param) const;                            // by index into Unit::params
  std::vector<FlatRange> gaps(std::int64_t shards) const;  // of padded(shards) not in any parameter
};

// Of every distinct unit, in the order of Model::distinct. Embedding and head that share a weight
// get the same size, so that their shards cover the same elements of it. Trained parameters only.
std::vector<FlatLayout> flat_layouts(const Model& model);

}  // namespace lockstep::arch
