// The collectives of the tensor ranks inside the passes of a unit, in the order in which nn issues
// them. What a rank's ledger shows under "tp" is predicted from these tables. With t
// ranks, in volumes of T h elements sent (t - 1) / t times, a block's microbatch costs
//
//   tensor parallelism alone                               8
//   and sequence parallelism, backward pass whole         10
//   and sequence parallelism, W put off                   12
//
// Korthikanti et al. (arXiv 2205.05198, section 4.2.2) count 8 for the second too, and apart from
// them the rows that the weights' gradients gather again: those of both norms in 10, those of both
// output gradients as well in 12. A recomputed block adds what its forward pass has before its last
// sum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/model/pass_bytes.h"
#include "lockstep/model/unit_bytes.h"

namespace lockstep::model {

enum class TensorOp : std::uint8_t { kAllGather, kReduceScatter, kAllReduce };

struct TensorCollective {
  TensorOp op = TensorOp::kAllGather;
  std::string name;        // what is gathered, or becomes the sum
  std::int64_t bytes = 0;  // of the buffer that holds all rows, padded to a multiple of tp elements
  bool operator==(const TensorCollective&) const = default;
};

// Bytes that one of `tp` ranks sends, as its ledger counts them.
std::int64_t sent(const TensorCollective& collective, std::int64_t tp);
std::int64_t sent(const std::vector<TensorCollective>& collectives, std::int64_t tp);

// None when sizes.tp is 1. REQUIRES: as pass_events.
std::vector<TensorCollective> pass_collectives(const ModelConfig& config, const Unit& unit,
                                               const UnitSizes& sizes, UnitPass pass);

}  // namespace lockstep::model
