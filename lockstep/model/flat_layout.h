// How the parameters of one segment (base/segment.h) lie in one flat buffer: the grain of ZeRO's
// gathers and shards, of gradient reduction and of the optimizer. Parameters, gradients and moments
// all lie alike.
//
//   - Parameters that decay come first, then those that do not: an optimizer needs two runs. Of the
//     first, replicated ones come last, of the others first, so that they are one run too: what is
//     summed over the tensor group where it is partial there. Gains that every head uses end that
//     run. Else in the order of the unit.
//   - Query, key and value are adjacent, and so are gate and up, so that one matrix product serves
//     them; so are their biases. Every other parameter starts at a multiple of 32 elements: 64
//     bytes in bf16 and more in wider types.
//   - A buffer shared by n ranks is padded to a multiple of 256 n elements, so that no shard
//     boundary cuts a tile of 256 (the grain of exact sums) or leaves a ragged vector tail.
//   - Where things lie does not depend on n, nor on which tensor rank it is: where ranks share a
//     vocabulary that they do not divide, each has as many rows of it, the last of them zeros.
//   - Gaps and padding hold zeros: their gradients are zero, so AdamW leaves them so. They are no
//     elements of the model: nobody draws, counts, compares, saves or exports them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/model/arch.h"

namespace lockstep::model {

inline constexpr std::int64_t kFlatAlign = 32;
inline constexpr std::int64_t kTile = 256;

struct FlatParam {
  int param = 0;  // index into Unit::params
  std::int64_t offset = 0;
  std::int64_t numel = 0;  // with rows that pad it
  std::int64_t end() const { return offset + numel; }
  bool operator==(const FlatParam&) const = default;
};

struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const FlatRange&) const = default;
};

// What both hold; where they do not meet, an empty range that lies in `a`. REQUIRES: end >= begin.
FlatRange common(const FlatRange& a, const FlatRange& b);

struct FlatLayout {
  std::vector<FlatParam> params;  // in buffer order
  std::int64_t size = 0;          // elements before padding for shards, a multiple of kFlatAlign
  std::int64_t decay_end = 0;     // decaying parameters lie in [0, decay_end)
  FlatRange replicated;           // parameters that no axis cuts, and nothing but gaps between them
  FlatRange over_heads;           // those of them that every head uses, at their end
  // Of what the tensor axis cuts, all that `copies` ranks side by side hold alike, because there
  // are more of them than heads of keys: keys, values and what is theirs, ascending. Each of these
  // ranks finds a summand of the gradient, that of its own queries.
  std::vector<FlatRange> copied;
  std::int64_t copies = 1;
  FlatRange tied;          // the weight that embedding and head share, at the same place in
                           // both; empty when nothing is tied
  bool tied_copy = false;  // this unit holds the second copy (the head): not counted again

  // Of what tensor ranks hold alike, where each finds a summand of the gradient: all under sequence
  // parallelism, because each sees its rows; else what every head uses, because each sees its
  // heads.
  FlatRange partial(bool sequence_parallel) const {
    return sequence_parallel ? replicated : over_heads;
  }

  std::int64_t padded(std::int64_t shards) const;
  FlatRange shard(std::int64_t shards, std::int64_t index) const;  // of padded(shards)
  bool holds(int param) const;                                     // by index into Unit::params
  const FlatParam& of(int param) const;
  std::vector<FlatRange> gaps(std::int64_t shards) const;  // of padded(shards) not in any parameter
};

// What tensor rank `coord` of `tp` holds of a parameter: elements [begin, begin + length) of dim
// `dim`, all of the others. A parameter that is not cut: all of dim 0.
struct TensorShard {
  int dim = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t padding = 0;  // rows of zeros behind them: length + padding is that of every rank
  bool is_copy = false;      // a rank before this one holds the same
  bool operator==(const TensorShard&) const = default;
};

// How many of `tp` ranks hold the same piece of what is cut.
std::int64_t copies(const Param& param, std::int64_t tp);
// The most that any parameter has.
std::int64_t copies(const Model& model, std::int64_t tp);

// REQUIRES: tp cuts the dim into multiples of its grain, or is a multiple of how many of these
// there are, unless it is padded.
TensorShard tensor_shard(const Param& param, std::int64_t tp, std::int64_t coord);

// A rank among those that share a unit, and among those that share its experts. Of its tensor ranks
// each `etp` side by side have a piece of every expert that these have.
struct TensorPlace {
  std::int64_t tp = 1;
  std::int64_t coord = 0;
  std::int64_t ep = 1;
  std::int64_t expert_coord = 0;
  std::int64_t etp = tp;
  bool operator==(const TensorPlace&) const = default;
};

// What of a parameter a rank there holds: of experts, of those that it has.
TensorShard tensor_shard(const Param& param, const TensorPlace& place);

// Of every distinct unit, in the order of Model::distinct; where some have experts, then of the
// experts of each, as Model::layout_of counts them. Embedding and head that share a weight
// get the same size, so that their shards cover the same elements of it, and what else the head has
// lies behind all that the embedding has, so that one buffer can hold the states of both. Trained
// parameters only.
// Each of `tp` ranks that share a unit holds its piece of what the tensor axis cuts; of `ep` groups
// of `etp` ranks (absent: tp) each as many experts, and each of such a group a piece of these.
// REQUIRES: tp >= 1, pieces that are multiples of their grain where they are not padded; an ep that
// divides the experts, an etp that divides tp.
std::vector<FlatLayout> flat_layouts(const Model& model, std::int64_t tp = 1, std::int64_t ep = 1,
                                     std::optional<std::int64_t> etp = {});

// Which elements of whole parameters lie where in a rank's flat buffer, where tensor ranks share a
// unit: initial weights are drawn by it, and whole states are cut and put together.

// Elements that lie side by side in a rank's buffer and in the whole parameter.
struct FlatRun {
  int param = 0;             // index into Unit::params
  std::int64_t at = 0;       // the first of them in the buffer
  std::int64_t element = 0;  // and in the whole parameter, in row-major order
  std::int64_t length = 0;
  bool operator==(const FlatRun&) const = default;
};

// Those of elements `range` of the rank's buffer, ascending; gaps and padding are in none. One per
// parameter, but one per row of a matrix that is cut by columns.
// REQUIRES: the unit's layout by flat_layouts(model, place.tp, place.ep, place.etp).
std::vector<FlatRun> flat_runs(const Unit& unit, const FlatLayout& layout, TensorPlace place,
                               FlatRange range);

}  // namespace lockstep::model
